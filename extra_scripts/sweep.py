#!/usr/bin/env python
"""The sweeps of Sec. 4: λ, the number of permutations, the number of negatives.

python extra_scripts/sweep.py lambda|permutations|negatives --data DIR --out DIR \
    [--scale quick] [--values V …] [--slurm PARTITION] [KEY=VALUE …]
"""

import sys

from pirl_plugin.__main__ import main

if __name__ == "__main__":
    sys.argv.insert(1, "sweep")
    main()
