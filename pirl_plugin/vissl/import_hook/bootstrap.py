"""The module ``pirl_plugin_autoload``: installs the import hook when VISSL is imported.

``setup.py`` copies this file to the root of site-packages, with two start-up files that make every
Python process import it: ``pirl_plugin_autoload.pth``, with the line ``import
pirl_plugin_autoload``, and ``pirl_plugin_autoload.start`` (PEP 829), which Python 3.15 and later
read instead. A process that does not import VISSL loads only one small class, and does not search
for this package. ``PIRL_PLUGIN_AUTOLOAD=0`` disables the import hook.

It uses few standard library modules, because it runs whenever Python starts.
"""

import os
import sys

TYPE_CHECKING = False  # importing typing would take longer than this module
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType


class PIRLBootstrap:
    """Meta-path finder that finds nothing; when VISSL is imported, the import hook replaces it."""

    def find_spec(
        self, name: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        """If ``name`` is one of VISSL's packages, install the import hook and delegate to it."""
        if name not in ("vissl", "classy_vision"):
            return None
        sys.meta_path.remove(self)
        try:
            from pirl_plugin.vissl.import_hook import finder
        except ModuleNotFoundError:  # the package, or an editable install's clone, is gone
            return None
        return finder.install().find_spec(name, path, target)


def install() -> None:
    """Install the bootstrap, unless it or the import hook is already installed.

    A virtual environment may process its start-up files twice (cpython issue 75723).
    """
    if os.environ.get("PIRL_PLUGIN_AUTOLOAD", "1") == "0":
        return
    for finder in sys.meta_path:
        if type(finder).__name__ in ("PIRLBootstrap", "ImportHook"):
            return
    sys.meta_path.insert(0, PIRLBootstrap())


install()
