"""``python extra_scripts/results_table.py RUN…``: what ``pirl-plugin results RUN…`` does."""

import sys

from pirl_plugin.cli import run

if __name__ == "__main__":
    sys.exit(run(["results", *sys.argv[1:]]))
