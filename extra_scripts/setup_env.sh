#!/usr/bin/env bash
# Sourced by quickstart.sh and run_tests.sh: a virtual environment with torch, the host without its
# pins, and this plugin. Sets $PYTHON. An environment that is there already is used as it is.
#
#   PIRL_VENV=DIR     where the environment is or goes (default: .venv beside this repository)
set -euo pipefail
unset PYTHONDONTWRITEBYTECODE  # or each of the many processes would compile this package again
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=${PIRL_VENV:-$root/.venv}
PYTHON=$venv/bin/python

# What the environment was made from; when it changes, the environment is brought up to date.
stamp=$venv/.pirl_plugin
wanted=$(cat "$root/setup.py" "$root/constraints.txt" "$root/pirl_plugin/vissl/import_hook/bootstrap.py" | cksum; echo "$root")
if [ ! -f "$stamp" ] || [ "$(cat "$stamp")" != "$wanted" ]; then
  if [ ! -x "$PYTHON" ]; then
    base=${PIRL_PYTHON:-python3}
    if ! "$base" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))'; then
      echo "Python 3.10 to 3.13 is needed, and $base is $("$base" --version 2>&1): set PIRL_PYTHON" >&2
      exit 1
    fi
    echo "Making $venv"
    "$base" -m venv "$venv"
  fi
  echo "Installing torch, torchvision, VISSL and this plugin (about 5 GB the first time)"
  # The constraints are the versions that the tests ran with; VISSL's own pins would make pip fail.
  install=("$PYTHON" -m pip install --disable-pip-version-check)
  if command -v uv > /dev/null; then install=(uv pip install --python "$PYTHON"); fi
  "${install[@]}" --editable "$root[test]" --constraint "$root/constraints.txt"
  "${install[@]}" --no-deps vissl==0.1.6
  echo "$wanted" > "$stamp"
fi
