#!/usr/bin/env bash
# Lint, types and tests, in the environment that quickstart.sh uses:
#
#   bash extra_scripts/run_tests.sh [pytest arguments]
source "$(dirname "${BASH_SOURCE[0]}")/setup_env.sh"
cd "$root"
"$PYTHON" -m ruff check .
"$PYTHON" -m ruff format --check .
# Against the libraries' versions in constraints.txt alone, which Python 3.10 does not get: what must
# be ignored in one version of torch need not be in another.
if "$PYTHON" -c "import sys; sys.exit(sys.version_info < (3, 11))"; then "$PYTHON" -m mypy; fi
exec "$PYTHON" -m pytest --numprocesses auto --maxprocesses 4 --dist loadscope --no-loadscope-reorder "$@"
