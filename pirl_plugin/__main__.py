"""``python -m pirl_plugin COMMAND …`` and the console script ``pirl-plugin COMMAND …``."""

from pirl_plugin.cli import main

if __name__ == "__main__":
    main()
