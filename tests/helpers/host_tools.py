"""Run the unmodified host's own scripts, and make what the benchmarks read."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from pirl_plugin.checkpoints.write import save_trunk
from pirl_plugin.models.resnet import ResNetTrunk, read_section

CPU = ["+config/pirl/machines=cpu", "config.DATA.TRAIN.BATCHSIZE_PER_REPLICA=8"]
LINEAR = ["+config/pirl/linear=resnet18", *CPU]


def run_tool(name: str, *overrides: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run ``tools/NAME`` of the host that is installed."""
    spec = importlib.util.find_spec("vissl")
    script = Path(str(spec and spec.origin)).parents[1] / "tools" / name
    result = subprocess.run(
        [sys.executable, str(script), *overrides],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        cwd=Path(__file__).parent,
    )
    if check:
        assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    return result


def top1(out: Path) -> dict[str, float]:
    """Top-1 of each layer at the end of a run, percent."""
    lines = [json.loads(line) for line in (out / "metrics.json").read_text().splitlines()]
    tested = [line for line in lines if "test_accuracy_list_meter" in line]
    return dict(tested[-1]["test_accuracy_list_meter"]["top_1"])


def write_checkpoint(path: Path, seed: int = 0, **section: float) -> Path:
    """A random trunk, ResNet-18 unless said, in the host's format."""
    torch.manual_seed(seed)
    save_trunk(ResNetTrunk(**read_section(section)), path)
    return path


def write_classes(root: Path, counts: dict[str, int], separable: bool, classes: int = 2) -> Path:
    """``root/SPLIT/CLASS/*.png`` of one colour with noise: the class's own, or any colour."""
    rng = np.random.default_rng(0)
    for split, count in counts.items():
        for i in range(count):
            label = i % classes
            folder = root / split / f"class{label}"
            folder.mkdir(parents=True, exist_ok=True)
            hue = label if separable else int(rng.integers(classes))
            write_coloured(folder / f"{i}.png", hue, rng)
    return root


def write_coloured(path: Path, channel: int, rng: np.random.Generator) -> None:
    """A 32-px image of noise with one channel the brightest."""
    pixels = rng.integers(0, 120, (32, 32, 3), dtype=np.uint8)
    pixels[:, :, channel] += 120
    Image.fromarray(pixels).save(path)
