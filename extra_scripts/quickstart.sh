#!/usr/bin/env bash
# Set up the environment, pre-train PIRL-jigsaw with VISSL's engine, evaluate it, write a report:
#
#   bash extra_scripts/quickstart.sh [--data DIR] [--out DIR] [--method NAME] [--seed N] [--epochs N]
#
# DIR holds train/<class>/*.jpg and val/<class>/*.jpg, or only images. Without --data, sample images
# are generated. NAME is jigsaw, rotation or npid. The results go to runs/quickstart: report.html,
# results.json, all logs.
set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}")
if [ ! -x "${PIRL_VENV:-$here/../.venv}/bin/python" ]; then
  # Check the options before the long installation. Exit status 3: the options ask for help.
  PYTHONPATH=$here/.. PYTHONDONTWRITEBYTECODE=1 "${PIRL_PYTHON:-python3}" - "$@" << 'END' || exit $(($? == 3 ? 0 : $?))
import sys
if sys.version_info < (3, 11):
    sys.exit(0)  # setup_env.sh refuses this Python
from pirl_plugin.quickstart.command import parse
try:
    parse(sys.argv[1:])
except SystemExit as ended:
    sys.exit(ended.code or 3)
END
fi
source "$here/setup_env.sh"
exec "$PYTHON" -m pirl_plugin quickstart "$@"
