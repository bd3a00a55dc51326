"""``pirl-plugin benchmark``, from a clone: python extra_scripts/benchmark.py pipeline --help."""

import sys

from pirl_plugin.__main__ import main

sys.argv.insert(1, "benchmark")
main()
