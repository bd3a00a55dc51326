#!/usr/bin/env bash
# Build the documentation site into docs/_build/html; a warning is an error:
#
#   bash extra_scripts/build_docs.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup_env.sh"
cd "$root"
"$PYTHON" -c 'import furo, myst_nb, sphinx' 2>/dev/null \
  || "$PYTHON" -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
    "$root[docs]"
"$PYTHON" -m sphinx -b html -W --keep-going -q docs docs/_build/html
echo "docs/_build/html/index.html"
