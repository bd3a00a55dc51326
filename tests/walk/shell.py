"""Run shell text as a user does, in a folder, with the commands of this environment."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Commands of the page go through tests.walk.small, which adds words that make them short.
_FUNCTIONS = """
pirl-plugin() { command python -m tests.walk.small pirl-plugin "$@"; }
torchrun() { command python -m tests.walk.small torchrun "$@"; }
python() { command python -m tests.walk.small python "$@"; }
pip() { echo "not installed, as this environment has it: pip $*"; }
git() { echo "not cloned, as this needs the network: git $*"; mkdir -p "${!#}"; }
curl() { echo "not downloaded, as this needs the network: curl $*"; }
"""


def run(text: str, folder: Path, small: bool = False, **environment: str) -> str:
    """Run shell text to its end.

    Args:
        text: commands.
        folder: the working directory.
        small: whether documented commands get the words of :mod:`tests.walk.small`.
        **environment: more variables.

    Returns:
        Standard output and error.

    Raises:
        AssertionError: a command failed; the message has the end of the output.
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
    """Return the commands that a run printed at its end."""
    return re.findall(r"^next +(.*)$", output, re.M)


def knn_top1(output: str) -> float:
    """Return the accuracy that ``pirl-plugin knn`` printed, percent."""
    (found,) = re.findall(r"^kNN top-1 ([\d.]+) %", output, re.M)
    return float(found)


def linear_top1(output: str) -> dict[str, float]:
    """Return layer → top-1 that ``pirl-plugin linear`` printed, percent."""
    table = output.rpartition("Linear top-1 (%):\n")[2]
    return {layer: float(top1) for layer, top1 in re.findall(r"^  (\w+) +([\d.]+)$", table, re.M)}
