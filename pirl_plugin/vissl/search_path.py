"""Make ``config=pretrain/pirl/…`` resolve from the host's own script, from any folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pirl_plugin.utils.config_root import config_root
from pirl_plugin.vissl.resolvers import register_resolvers

if TYPE_CHECKING:
    from hydra.core.config_search_path import ConfigSearchPath

    from pirl_plugin.vissl.host_module import HostModule


def add_our_configs(_module: HostModule) -> None:
    """Append our folder to Hydra's search path, after the host's, as a search-path plugin."""
    from hydra.core.plugins import Plugins
    from hydra.plugins.search_path_plugin import SearchPathPlugin

    class PIRLSearchPath(SearchPathPlugin):
        """Adds ``configs/`` of this plugin to the folders that Hydra searches."""

        def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
            """Append our root; the host's and the current folder's configs go first."""
            search_path.append(provider="pirl_plugin", path=f"file://{config_root()}")

    Plugins.instance().register(PIRLSearchPath)
    register_resolvers()
