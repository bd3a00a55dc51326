"""The module ``pirl_plugin_autoload``: installs the import hook when the host is imported.

``setup.py`` copies this file to the root of site-packages, beside the two start-up files that have
every Python process import it: ``pirl_plugin_autoload.pth``, with the line ``import
pirl_plugin_autoload``, and ``pirl_plugin_autoload.start`` (PEP 829), which Python 3.15 and later
read in its place. A process that never imports VISSL pays for one small class and does not look for
this package. ``PIRL_PLUGIN_AUTOLOAD=0`` leaves the import hook out.

Standard library only, and as little of it as can be: this runs at each start of Python.
"""

import os
import sys

TYPE_CHECKING = False  # the typing module itself would take longer than this one
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType


class PIRLBootstrap:
    """Meta-path finder that finds nothing; the host's import puts the import hook in its place."""

    def find_spec(
        self, name: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        """Install the import hook and delegate to it, if ``name`` is the host's."""
        if name not in ("vissl", "classy_vision", "extra_scripts"):  # the last imports the first
            return None
        sys.meta_path.remove(self)
        try:
            from pirl_plugin.vissl.import_hook import finder
        except ModuleNotFoundError:  # the package is gone, or the clone of an editable install
            return None
        return finder.install().find_spec(name, path, target)


def install() -> None:
    """Install the bootstrap, unless it or the import hook is there already.

    A virtual environment may process its start-up files twice (cpython issue 75723).
    """
    if os.environ.get("PIRL_PLUGIN_AUTOLOAD", "1") == "0":
        return
    for finder in sys.meta_path:
        if type(finder).__name__ in ("PIRLBootstrap", "ImportHook"):
            return
    sys.meta_path.insert(0, PIRLBootstrap())


install()
