"""Run shell text as a user does, in a folder, with this environment's commands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# A page's commands go through tests.walk.small, which adds arguments that shorten them. There is no
# network: packages are installed, the clone is this one, and downloaded files are already there.
_FUNCTIONS = """
bash() { command python -m tests.walk.small bash "$@"; }
pirl-plugin() { command python -m tests.walk.small pirl-plugin "$@"; }
torchrun() { command python -m tests.walk.small torchrun "$@"; }
python() { command python -m tests.walk.small python "$@"; }
pip() { echo "not installed: pip $*"; }
git() { echo "not cloned: git $*"; mkdir -p "${!#}"; ln -s "$PYTHONPATH/extra_scripts" "${!#}"; }
curl() { echo "not downloaded: curl $*"; }
"""


def run(text: str, folder: Path, small: bool = False, **environment: str) -> str:
    """Run shell text to its end.

    Args:
        text: commands.
        folder: the working directory.
        small: whether to add the arguments from :mod:`tests.walk.small`.
        **environment: additional environment variables.

    Returns:
        Standard output and error.

    Raises:
        AssertionError: a command failed; the message ends with its output.
    """
    script = "set -euo pipefail\n" + (_FUNCTIONS if small else "") + text
    variables = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env={**os.environ, **variables, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{text}\nended with {done.returncode}:\n{done.stdout[-4000:]}"
    return done.stdout


def next_commands(output: str) -> list[str]:
    """Return the commands that a run printed at the end."""
    return re.findall(r"^next +(.*)$", output, re.M)


def knn_top1(output: str) -> float:
    """Return the accuracy printed by ``pirl-plugin knn``, in percent."""
    (found,) = re.findall(r"^kNN top-1 ([\d.]+) %", output, re.M)
    return float(found)


def linear_top1(output: str) -> float:
    """Return the chosen layer's accuracy as printed by ``pirl-plugin linear``, in percent."""
    (found,) = re.findall(r"^  \w+ +[\d.]+ +([\d.]+) +\S+  chosen$", output, re.M)
    return float(found)
