#!/usr/bin/env bash
# Build the documentation site into docs/_build/html; a warning is an error:
#
#   bash extra_scripts/build_docs.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup_env.sh"
install_extras docs
cd "$root"
"$PYTHON" -m sphinx -b html -W --keep-going -q docs docs/_build/html
echo "docs/_build/html/index.html"
