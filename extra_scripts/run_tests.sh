#!/usr/bin/env bash
# Lint, types and tests, in the environment that quickstart.sh uses:
#
#   bash extra_scripts/run_tests.sh [pytest arguments]
source "$(dirname "${BASH_SOURCE[0]}")/setup_env.sh"
cd "$root"
"$PYTHON" -m ruff check .
"$PYTHON" -m ruff format --check .
"$PYTHON" -m mypy
exec "$PYTHON" -m pytest --numprocesses auto --maxprocesses 4 --dist loadscope "$@"
