#!/usr/bin/env bash
# Check every CUDA path on the GPU of this machine: the tests marked gpu, the benchmarks, short runs:
#
#   bash extra_scripts/gpu_check.sh [--minutes 8] [--out DIR] [--data PHOTOS]
#
# Needs torch and the packages, installs nothing and asks no network. Writes gpu.json, gpu.md and
# gpu.log to DIR (runs/gpu_check) after each part; the same command goes on with what is left. Exit
# status: 0 nothing failed, 1 a part failed, 2 there is no GPU. PIRL_PYTHON names another Python than
# that of .venv, or python3.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
PYTHON=${PIRL_PYTHON:-$root/.venv/bin/python}
[ -x "$PYTHON" ] || PYTHON=${PIRL_PYTHON:-python3}
PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" exec "$PYTHON" -m pirl_plugin.benchmark.gpu_check "$@"
