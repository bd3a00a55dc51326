"""``python -m pirl_plugin COMMAND …``: the same as the console script ``pirl-plugin COMMAND …``."""

import os
import sys

if __name__ == "__main__":
    # Python puts the current folder first, where a folder such as `datasets` is data, not code.
    if sys.path[0] in ("", os.getcwd()):
        del sys.path[0]
        root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        if root == os.getcwd():  # a clone that is not installed
            sys.path.append(root)
    from pirl_plugin.cli import main

    main()
