#!/usr/bin/env bash
# Lint, types and tests. The first time, the required tools are added to quickstart.sh's environment:
#
#   bash extra_scripts/run_tests.sh [pytest arguments]
source "$(dirname "${BASH_SOURCE[0]}")/setup_env.sh"
install_extras test
cd "$root"
"$PYTHON" -m ruff check .
"$PYTHON" -m ruff format --check .
"$PYTHON" -m mypy
exec "$PYTHON" -m pytest --numprocesses auto --maxprocesses 4 --dist loadscope --no-loadscope-reorder "$@"
