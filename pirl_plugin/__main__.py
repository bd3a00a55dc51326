"""``python -m pirl_plugin COMMAND …`` and the console script ``pirl-plugin COMMAND …``."""

from __future__ import annotations

import sys


def main() -> None:
    """Install the import hook, which a ``.pth`` file may not have done, and run the command."""
    from pirl_plugin.cli import run
    from pirl_plugin.host.import_hook import finder

    finder.install()
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
