"""``python -m pirl_plugin.benchmark.gpu_check``, in a clone; see ``extra_scripts/gpu_check.sh``."""

import sys

from pirl_plugin.benchmark.gpu_check.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
