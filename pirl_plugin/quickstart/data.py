"""What quick runs are made on: the images that were given, and the settings of a small network."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pirl_plugin.evaluation.image_folder import val_folder
from pirl_plugin.images.sources.folder import FolderSource
from pirl_plugin.images.sources.paths import check_all_in_classes, class_folders, find_images
from pirl_plugin.utils.hydra_overrides import quoted

TRUNK = {"DEPTH": 10, "WIDTH_MULTIPLIER": 0.5}  # as in config=pretrain/pirl/quick_jigsaw
IMAGE_SIZE = 64
IMAGES_SEEN = 120_000  # about five minutes of two cores, whatever the size of the data set


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
    """Look at ``train/<class>/*``, ``val/<class>/*`` (or ``validation/``), or a folder of images.

    Args:
        folder: what was given.

    Raises:
        SystemExit: there are no images, or fewer than two; or none in ``val``, or other classes.
    """
    if not folder.is_dir():
        raise SystemExit(
            f"pirl_plugin: --data = {folder}: expected a folder of images; there is no such folder"
        )
    train = folder / "train" if (folder / "train").is_dir() else folder
    try:
        images = FolderSource(train)
    except (OSError, ValueError) as error:
        raise SystemExit(f"pirl_plugin: --data = {folder}: {error}") from None
    val = val_folder(folder)
    classes = class_folders(str(train))
    if train == folder or val is None or len(classes) < 2:
        return Data(train, None, len(images), max(1, len(classes)))
    try:
        for folder_of_classes in (train, val):
            check_all_in_classes(folder_of_classes)
    except ValueError as error:
        raise SystemExit(f"pirl_plugin: --data = {folder}: {error}") from None
    odd = sorted(set(classes) ^ set(class_folders(str(val))))
    if odd:
        raise SystemExit(
            f"pirl_plugin: --data = {folder}: expected the same classes in {train.name} and "
            f"{val.name}; the folder '{odd[0]}' is in one of them alone; an empty one will do"
        )
    if next(iter(find_images(str(val))), None) is None:
        raise SystemExit(
            f"pirl_plugin: --data = {folder}: expected images in {val}, and there is none; add "
            f"some, or remove the folder to train without a measurement"
        )
    return Data(train, val, len(images), len(classes))


def why_unmeasured(folder: Path) -> str:
    """Why there is nothing to evaluate on, of a folder whose ``Data.val`` is None.

    Args:
        folder: what was given.
    """
    test = val_folder(folder)
    if folder.name == "train" and not (folder / "train").is_dir():
        beside = val_folder(folder.parent)
        if beside is not None:
            return f"{folder} was given without {beside}; give --data {folder.parent}"
        return f"{folder.parent} has no val/CLASS/* or validation/CLASS/* beside train/CLASS/*"
    if not (folder / "train").is_dir():
        return f"{folder} has no train/CLASS/* and val/CLASS/*"
    if test is None:
        return f"{folder} has no val/CLASS/* or validation/CLASS/* beside train/CLASS/*"
    return f"{folder / 'train'} has fewer than two folders of classes"


def find_labelled_data(folder: Path) -> Data:
    """As :func:`find_data`, of what can be evaluated on.

    Raises:
        SystemExit: as there, or there are no test images, or fewer than two classes.
    """
    data = find_data(folder)
    if data.val is None:
        test = val_folder(folder)
        raise SystemExit(
            f"pirl_plugin: --data = {folder}: expected train/CLASS/* and val/CLASS/* with two "
            f"classes or more, and found {len(class_folders(str(data.train)))} in {data.train} and "
            f"{f'a {test.name}' if test else 'no val'}; give a labelled folder"
        )
    return data


def quick_epochs(data: Data) -> int:
    """Epochs in which ``IMAGES_SEEN`` images are seen, at least one."""
    return max(1, round(IMAGES_SEEN / data.num_train))


def quick_linear(data: Data, checkpoint: Path) -> list[str]:
    """Overrides of the host's linear benchmark of a checkpoint, for any number of classes."""
    return [
        "config=benchmark/pirl/quick_linear",
        f"config.DATA.TRAIN.DATA_PATHS=[{quoted(data.train)}]",
        f"config.DATA.TEST.DATA_PATHS=[{quoted(str(data.val))}]",
        f"config.MODEL.HEAD.NUM_CLASSES={data.num_classes}",
        f"config.MODEL.WEIGHTS_INIT.PARAMS_FILE={quoted(checkpoint)}",
    ]
