"""``python -m pirl_plugin COMMAND …`` and the console script ``pirl-plugin COMMAND …``.

The door is opened at the top of this module, not in :func:`main`: spawned ranks and data-loader
workers import the main module again before anything else, so that ``train`` works where ``.pth``
files are not processed (``pip install --target``, ``PYTHONPATH``, ``python -S``).
"""

from __future__ import annotations

import sys

from pirl_plugin.host import door

door.install()


def main() -> None:
    """Run the command that the arguments name."""
    from pirl_plugin.cli import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
