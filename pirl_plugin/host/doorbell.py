"""The text of ``pirl_plugin_autoload.pth``: opens the door when a process first imports the host.

``setup.py`` writes this file into the ``.pth`` as one line, so that a Python process that never
imports VISSL pays for one small class, a quarter of a millisecond, and does not even look for
this package. ``PIRL_PLUGIN_AUTOLOAD=0`` leaves the door shut.
"""

import os
import sys


class PIRLDoorbell:
    """Meta-path finder that finds nothing; at the host's first import it makes way for the door."""

    def find_spec(self, name, path=None, target=None):  # type: ignore[no-untyped-def]
        """Open the door and let it answer, if ``name`` is the host's."""
        if name not in ("vissl", "classy_vision", "extra_scripts"):  # the last imports the first
            return None
        sys.meta_path.remove(self)
        try:
            from pirl_plugin.host import door
        except ModuleNotFoundError as error:  # the clone of an editable install has moved
            print(f"pirl_plugin_autoload.pth: {error}: pip uninstall pirl-plugin", file=sys.stderr)
            return None
        return door.install().find_spec(name, path, target)


if os.environ.get("PIRL_PLUGIN_AUTOLOAD", "1") != "0":
    sys.meta_path.insert(0, PIRLDoorbell())
