"""``python -m pirl_plugin COMMAND …``: the same as the console script ``pirl-plugin COMMAND …``."""

import os
import sys
from pathlib import Path

if __name__ == "__main__":
    # Python puts the current folder first, where a folder such as `datasets` is data, not code.
    if sys.path[0] in ("", os.getcwd()):
        del sys.path[0]
        root = Path(__file__).resolve().parents[1]
        if root == Path.cwd():  # a clone that is not installed
            sys.path.append(str(root))
    from pirl_plugin.cli import main

    main()
