"""``python extra_scripts/knn.py …``: what ``pirl-plugin knn …`` does."""

import sys

from pirl_plugin.cli import run

if __name__ == "__main__":
    sys.exit(run(["knn", *sys.argv[1:]]))
