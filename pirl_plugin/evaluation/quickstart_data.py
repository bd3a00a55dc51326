"""What the quickstart runs on: the images it was given, and the settings of its small network."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pirl_plugin.data.source import PIRLDiskDataset

TRUNK = {"DEPTH": 10, "WIDTH_MULTIPLIER": 0.5}  # as in config=pretrain/pirl/quick_jigsaw
IMAGE_SIZE = 64


@dataclass(frozen=True)
class Data:
    """Where the images are. Without a ``val`` folder there is nothing to evaluate on.

    Attributes:
        train: folder of training images.
        val: folder of test images with the same class subfolders, or None.
        num_train: training images.
        num_classes: class subfolders of ``train``.
    """

    train: Path
    val: Path | None
    num_train: int
    num_classes: int


def find_data(folder: Path) -> Data:
    """Look at ``train/<class>/*``, ``val/<class>/*`` or a flat folder of images.

    Raises:
        SystemExit: there are no images, or fewer than two.
    """
    train = folder / "train" if (folder / "train").is_dir() else folder
    try:
        images = PIRLDiskDataset({"DATA": {"TRAIN": {}}}, "pirl_disk_folder", str(train), "TRAIN")
    except (OSError, ValueError) as error:
        raise SystemExit(f"pirl_plugin: {error}") from None
    val = folder / "val"
    num_classes = len(set(images.get_labels()))
    labelled = train != folder and val.is_dir() and num_classes > 1
    return Data(train, val if labelled else None, len(images), num_classes)
