"""Tiny data sets in every documented format: red and blue 80-px images.

The classes differ so much that every classifier must be right, even on an untrained network.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from tests.helpers.host_tools import write_voc
from tests.helpers.kinds import Images, write_kind
from tests.walk.shell import ROOT

CLASSES = {"blue": (40, 60, 200), "red": (200, 60, 40)}
IMAGES = {"train": 16, "val": 6}
"""Images of each class."""
_SIDE = 80  # pixels


def picture(color: tuple[int, int, int], seed: int) -> Image.Image:
    """Return a blurred image around one color."""
    noise = np.random.default_rng(seed).integers(-40, 40, (6, 6, 3))
    pixels = np.clip(np.array(color) + noise, 0, 255).astype(np.uint8)
    return Image.fromarray(pixels).resize((_SIDE, _SIDE), Image.Resampling.BICUBIC)


def labeled() -> Images:
    """Return the labeled images of each split."""
    return {
        split: [(name, picture(CLASSES[name], n)) for n in range(count) for name in CLASSES]
        for split, count in IMAGES.items()
    }


def folder(root: Path, classes: tuple[str, str] = ("blue", "red")) -> None:
    """``{train,val}/CLASS/*.jpg``."""
    for split, count in IMAGES.items():
        for name, color in zip(classes, CLASSES.values(), strict=True):
            for number in range(count):
                seed = number + count * (name == classes[0])
                path = root / split / name / f"{name}_{number}.jpg"
                path.parent.mkdir(parents=True, exist_ok=True)
                picture(color, seed).save(path)


def catalog(root: Path) -> None:
    """``imagenet1k/{train,val}``, and ``catalog.json`` for VISSL."""
    folder(root / "imagenet1k", ("n01440764", "n01443537"))
    paths = {split: [str(root / "imagenet1k" / split), ""] for split in ("train", "val")}
    (root / "catalog.json").write_text(json.dumps({"imagenet1k_folder": paths}))


def papers(root: Path) -> None:
    """All data sets from the paper, laid out as in ``docs/guides/data.md``."""
    folder(root / "imagenet1k", ("n01440764", "n01443537"))
    folder(root / "places205", ("000", "204"))
    for percent in ("1percent", "10percent"):
        names = [path.name for path in root.glob("imagenet1k/train/*/*.jpg")]
        text = "".join(f"{name.split('_')[0]}/{name} {name.split('_')[0]}\n" for name in names)
        (root / "imagenet1k" / "train" / f"{percent}.txt").write_text(text)
    (root / "yfcc1m").mkdir()
    paths = [str(path) for path in root.glob("imagenet1k/train/*/*.jpg")]
    np.save(root / "yfcc1m" / "train.npy", np.array(paths))
    inaturalist(root / "inaturalist18")
    voc(root / "VOCdevkit")


def papers_catalog(file: Path) -> None:
    """VISSL's catalog of :func:`papers` in ``DIR``, from ``docs/guides/data.md``."""
    page = (ROOT / "docs/guides/data.md").read_text()
    _, _, text = page.partition("catalog.json <<'END'\n")
    file.write_text(text.partition("END")[0])


def inaturalist(root: Path) -> None:
    """``train2018.json``, ``val2018.json`` and the images."""
    folder(root / "train_val2018" / "Birds")
    for split in IMAGES:
        paths = sorted(root.glob(f"train_val2018/Birds/{split}/*/*.jpg"))
        images = [
            {"id": i, "file_name": str(path.relative_to(root))} for i, path in enumerate(paths)
        ]
        labels = [
            {"image_id": i, "category_id": list(CLASSES).index(path.parent.name)}
            for i, path in enumerate(paths)
        ]
        content = {"images": images, "annotations": labels}
        (root / f"{split}2018.json").write_text(json.dumps(content))


def voc(root: Path) -> None:
    """``VOC2007`` for classification."""
    write_voc(root / "VOC2007")


def bands(root: Path) -> None:
    """``*.npy`` with five 16-bit channels."""
    root.mkdir(parents=True)
    for number in range(16):
        pixels = np.random.default_rng(number).integers(0, 4096, (_SIDE, _SIDE, 5), np.uint16)
        np.save(root / f"{number}.npy", pixels)


def photos(root: Path) -> None:
    """Unlabeled images."""
    folder(root)
    for number, path in enumerate(sorted(root.glob("*/*/*.jpg"))):
        path.rename(root / f"{number}.jpg")
    for split in IMAGES:
        shutil.rmtree(root / split)


def written(kind: str) -> Callable[[Path], None]:
    """Return a function that writes the images in a format of :mod:`tests.helpers.kinds`."""
    return lambda root: write_kind(kind, root, labeled())


KINDS: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "folder": (folder, "folder", "DATA/train"),
    "catalog": (catalog, "imagenet1k", ""),
    "text": (written("text"), "filelist", "DATA/train.txt"),
    "CSV": (written("csv"), "filelist", "DATA/train.csv"),
    "tars": (written("tars"), "shards", "DATA/train"),
    "Hugging Face": (written("arrow"), "hf", "DATA/train"),
}
"""Kind of data → the function that makes ``DATA``, the overlay, and the training images."""
