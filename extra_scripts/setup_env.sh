#!/usr/bin/env bash
# Sourced by the other scripts: make a virtual environment with torch, VISSL without its version
# pins, and this plugin, and set $PYTHON. An existing environment is used, and updated if needed.
#
#   PIRL_VENV=DIR     folder of the environment (default: .venv in this repository)
#
# install_extras NAMES then adds extras from pyproject.toml, such as "test".
set -euo pipefail
unset PYTHONDONTWRITEBYTECODE  # otherwise each process would compile this package again
root=$(cd -P "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=${PIRL_VENV:-$root/.venv}
PYTHON=$venv/bin/python

# Inputs to the environment; when one changes, the environment is updated.
inputs=("$root/pyproject.toml" "$root/setup.py" "$root/constraints.txt"
  "$root/pirl_plugin/vissl/import_hook/bootstrap.py")
wanted=$(cat "${inputs[@]}" | cksum; echo "$root")

# Install the package with some extras, unless the environment has them for the same inputs. The
# constraints are the tested versions. torch and torchvision stay as they are if they are there, such
# as the smaller CPU build.
install_extras() {
  local stamp=$venv/.pirl_plugin.$1
  if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then return; fi
  local constraints=$root/constraints.txt
  if "$PYTHON" -c "import torch, torchvision" 2> /dev/null; then
    constraints=$venv/constraints.txt
    grep -vE "^torch(vision)?==" "$root/constraints.txt" > "$constraints"
  fi
  local install=("$PYTHON" -m pip install --disable-pip-version-check)
  "${install[@]}" --editable "$root[$1]" --constraint "$constraints"
  # VISSL's own version pins would make pip fail.
  "${install[@]}" --no-deps vissl==0.1.6
  "$PYTHON" -c 'import torch, torchvision as tv
build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU"
print(f"torch {torch.__version__} ({build} build), torchvision {tv.__version__}")'
  echo "$venv: $(du -sh "$venv" | cut -f1)"
  echo "$wanted" > "$stamp"
}

if [ ! -x "$PYTHON" ]; then
  base=${PIRL_PYTHON:-python3}
  if ! "$base" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "$base is $("$base" --version 2>&1). Set PIRL_PYTHON to Python 3.11 to 3.14." >&2
    exit 1
  fi
  if ! "$base" -c 'import sys; sys.exit(sys.version_info >= (3, 15))'; then
    echo "$base is $("$base" --version 2>&1). Tested are Python 3.11 to 3.14." >&2
  fi
  echo "Creating $venv with torch, torchvision, VISSL and this plugin (about 6 GB on disk)"
  "$base" -m venv "$venv"
fi
install_extras vissl,report
