"""Input files for benchmarks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from pirl_plugin.checkpoints.write import save_trunk
from pirl_plugin.models.resnet import WideResNet

CPU = ["+config/pirl/machines=cpu", "config.DATA.TRAIN.BATCHSIZE_PER_REPLICA=8"]
LINEAR = ["+config/pirl/linear=resnet18", *CPU]


def write_checkpoint(path: Path, seed: int = 0, **section: float) -> Path:
    """Write a random trunk in VISSL's format (default: ResNet-18)."""
    torch.manual_seed(seed)
    section["width"] = section.pop("WIDTH_MULTIPLIER", 1)
    arguments = {"depth": 18, **{key.lower(): value for key, value in section.items()}}
    save_trunk(WideResNet(**arguments), path)
    return path


def write_classes(root: Path, counts: dict[str, int], separable: bool, classes: int = 2) -> Path:
    """Write ``root/SPLIT/CLASS/*.png``, noisy images in the class's color or in random colors."""
    rng = np.random.default_rng(0)
    for split, count in counts.items():
        for i in range(count):
            label = i % classes
            folder = root / split / f"class{label}"
            folder.mkdir(parents=True, exist_ok=True)
            hue = label if separable else int(rng.integers(classes))
            write_colored(folder / f"{i}.png", hue, rng)
    return root


def write_voc(root: Path) -> Path:
    """Write a VOC2007 with three colors: one or two per image, occasionally a difficult one."""
    classes = ("bird", "cat", "dog")
    (root / "ImageSets" / "Main").mkdir(parents=True)
    (root / "JPEGImages").mkdir()
    rng = np.random.default_rng(0)
    for split, count in (("trainval", 36), ("test", 24)):
        rows: dict[str, list[str]] = {name: [] for name in classes}
        for i in range(count):
            image = f"{split}{i:03d}"
            present = rng.integers(0, 2, 3)
            shown = int(rng.choice(np.flatnonzero(present))) if present.any() else 0
            write_colored(root / "JPEGImages" / f"{image}.jpg", shown, rng)
            for j, name in enumerate(classes):
                label = 0 if rng.random() < 0.1 else (1 if present[j] else -1)
                rows[name].append(f"{image} {label:2d}")
        for name, lines in rows.items():
            file = root / "ImageSets" / "Main" / f"{name}_{split}.txt"
            file.write_text("\n".join(lines) + "\n")
    return root


def write_colored(path: Path, channel: int, rng: np.random.Generator) -> None:
    """Write a 32-px noise image with one brightest channel."""
    pixels = rng.integers(0, 120, (32, 32, 3), dtype=np.uint8)
    pixels[:, :, channel] += 120
    Image.fromarray(pixels).save(path)
