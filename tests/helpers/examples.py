"""Run a program of ``docs/examples`` as its docstring says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"
TORCHRUN = ("torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--module")


def run_example(
    folder: Path, network: str, *words: str | Path, launcher: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Run an example in a folder, with a small network in the place of resnet18.

    Args:
        folder: the current one; holds ``photos``.
        network: module of tests.helpers that puts the network there.
        words: the example's file, then its arguments.
        launcher: what runs the module, such as :data:`TORCHRUN`.
    """
    return subprocess.run(
        [sys.executable, "-m", *launcher, f"tests.helpers.{network}", *map(str, words)],
        cwd=folder,
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "PYTHONPATH": str(ROOT),
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
