"""Tiny data sets in every documented format: red and blue 80-px images.

The classes differ so much that every classifier must be right, even on an untrained network.
"""

from __future__ import annotations

import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = {"blue": (40, 60, 200), "red": (200, 60, 40)}
IMAGES = {"train": 16, "val": 6}
"""Images of each class."""
_SIDE = 80  # pixels


def image(path: Path, color: tuple[int, int, int], seed: int) -> None:
    """Write a blurred image around one color."""
    noise = np.random.default_rng(seed).integers(-40, 40, (6, 6, 3))
    pixels = np.clip(np.array(color) + noise, 0, 255).astype(np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).resize((_SIDE, _SIDE), Image.Resampling.BICUBIC).save(path)


def folder(root: Path, classes: tuple[str, str] = ("blue", "red")) -> None:
    """``{train,val}/CLASS/*.jpg``."""
    for split, count in IMAGES.items():
        for name, color in zip(classes, CLASSES.values(), strict=True):
            for number in range(count):
                seed = number + count * (name == classes[0])
                image(root / split / name / f"{name}_{number}.jpg", color, seed)


def listed(root: Path) -> list[tuple[str, str, int]]:
    """Return split, path and class for each image in :func:`folder` below ``root/images``."""
    folder(root / "images")
    return [
        (path.parts[-3], str(path), list(CLASSES).index(path.parent.name))
        for path in sorted(root.glob("images/*/*/*.jpg"))
    ]


def text_list(root: Path) -> None:
    """``train.txt`` and ``val.txt``, with a path and a class on each line."""
    for split in IMAGES:
        lines = [f"{path} {label}\n" for each, path, label in listed(root) if each == split]
        (root / f"{split}.txt").write_text("".join(lines))


def csv(root: Path) -> None:
    """``train.csv`` and ``val.csv`` with a header."""
    for split in IMAGES:
        rows = [
            f"{path},{list(CLASSES)[label]}\n"
            for each, path, label in listed(root)
            if each == split
        ]
        (root / f"{split}.csv").write_text("path,label\n" + "".join(rows))


def tars(root: Path) -> None:
    """``train/*.tar`` and ``val/*.tar``."""
    folder(root / "images")
    for split in IMAGES:
        (root / split).mkdir()
        with tarfile.open(root / split / "images.tar", "w") as tar:
            tar.add(root / "images" / split, ".")


def hugging_face(root: Path) -> None:
    """``train`` and ``val``, each a data set written by ``save_to_disk``."""
    import datasets

    features = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(names=list(CLASSES))}
    )
    for split in IMAGES:
        rows = [
            {"image": path, "label": label} for each, path, label in listed(root) if each == split
        ]
        data = datasets.Dataset.from_list(rows, features=features)
        data.save_to_disk(root / split)


def catalog(root: Path) -> None:
    """``imagenet1k/{train,val}``, for ``PIRL_DATASETS=root``."""
    folder(root / "imagenet1k", ("n01440764", "n01443537"))


def papers(root: Path) -> None:
    """All data sets from the paper, laid out as in ``docs/guides/data.md``."""
    catalog(root)
    folder(root / "places205", ("000", "204"))
    for percent in ("1percent", "10percent"):
        names = [path.name for path in root.glob("imagenet1k/train/*/*.jpg")]
        text = "".join(f"{name.split('_')[0]}/{name}\n" for name in names)
        (root / "imagenet1k" / "train" / f"{percent}.txt").write_text(text)
    (root / "yfcc1m").mkdir()
    paths = [str(path) for path in root.glob("imagenet1k/train/*/*.jpg")]
    np.save(root / "yfcc1m" / "train.npy", np.array(paths))
    inaturalist(root / "inaturalist18")
    voc(root / "VOCdevkit")


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


VOC_CLASSES = (
    "aeroplane bicycle bird boat bottle bus car cat chair cow diningtable dog horse motorbike "
    "person pottedplant sheep sofa train tvmonitor"
).split()


def voc(root: Path) -> None:
    """``VOC2007`` for classification, with two of the twenty classes in each image."""
    base = root / "VOC2007"
    lists = base / "ImageSets" / "Main"
    lists.mkdir(parents=True)
    names = {split: [f"{split[:2]}{i:04d}" for i in range(40)] for split in ("trainval", "test")}
    for split, ids in names.items():
        (lists / f"{split}.txt").write_text("".join(f"{name}\n" for name in ids))
        for label, category in enumerate(VOC_CLASSES):
            marks = [f"{name} {1 if i % 20 == label else -1}\n" for i, name in enumerate(ids)]
            (lists / f"{category}_{split}.txt").write_text("".join(marks))
        for i, name in enumerate(ids):
            color = tuple(int(v) for v in np.random.default_rng(i % 20).integers(0, 256, 3))
            image(base / "JPEGImages" / f"{name}.jpg", color, i)


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


KINDS: dict[str, tuple[Callable[[Path], None], tuple[str, ...]]] = {
    "folder": (folder, ("config.DATA.TRAIN.DATA_PATHS=[DATA/train]",)),
    "catalog": (catalog, ("+config/pirl/datasets=imagenet1k",)),
    "list": (
        text_list,
        ("+config/pirl/datasets=filelist", "config.DATA.TRAIN.DATA_PATHS=[DATA/train.txt]"),
    ),
    "CSV": (
        csv,
        ("+config/pirl/datasets=filelist", "config.DATA.TRAIN.DATA_PATHS=[DATA/train.csv]"),
    ),
    "tars": (
        tars,
        ("+config/pirl/datasets=shards", "config.DATA.TRAIN.DATA_PATHS=[DATA/train]"),
    ),
    "Hugging Face": (
        hugging_face,
        ("+config/pirl/datasets=hf", "config.DATA.TRAIN.DATA_PATHS=[DATA/train]"),
    ),
}
"""Kind of data -> the function that makes ``DATA``, and the overrides of a pre-training."""
