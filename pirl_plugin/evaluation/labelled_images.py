"""The images of the evaluations: any source, with the splits and classes of labelled data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pirl_plugin.images.classes import NoLabels, join_classes
from pirl_plugin.images.columns import BY_NAME, Columns
from pirl_plugin.images.datasets import HuggingFaceSource
from pirl_plugin.images.filelist import FileListSource
from pirl_plugin.images.fingerprint import say_shared_images
from pirl_plugin.images.folders import (
    SPLIT_NAMES,
    SPLITS,
    FolderSource,
    class_folders,
    find_split,
)
from pirl_plugin.images.names import DISK_FILELIST, DISK_FOLDER, DISK_HF, DISK_SHARDS
from pirl_plugin.images.shards import ShardSource
from pirl_plugin.images.source import warn_once
from pirl_plugin.images.sources import ImageSource, open_source
from pirl_plugin.system.failures import MissingFile, Refused

SOURCE_NAMES: dict[type[ImageSource], str] = {
    FolderSource: DISK_FOLDER,
    FileListSource: DISK_FILELIST,
    ShardSource: DISK_SHARDS,
    HuggingFaceSource: DISK_HF,
}
"""Source -> its name in a configuration."""


@dataclass(frozen=True)
class LabelledImages:
    """Training and test images, whose classes are joined by name.

    Attributes:
        train: source of the training images.
        test: source of the test images.
        classes: names of the classes of the training images; the test images may lack some.
        train_labels: int64 (N,), an index into ``classes`` for each training image; −1: no class.
        test_labels: int64 (M,), likewise for the test images.
    """

    train: ImageSource
    test: ImageSource
    classes: list[str]
    train_labels: NDArray[np.int64]
    test_labels: NDArray[np.int64]


def open_labelled(root: Path, columns: Columns = BY_NAME) -> LabelledImages:
    """Open training and test images: two folders, two lists, or the splits of a data set.

    Args:
        root: folder of ``train`` and ``val`` (or ``validation``, ``test``, …: see
            :data:`pirl_plugin.images.folders.SPLITS`). Each is a folder of class folders, of tars
            or of a Hugging Face data set, or a list such as ``train.csv``. Or a Hugging Face data
            set with two splits.
        columns: of tables and data sets.

    Raises:
        FileNotFoundError: a split is missing.
        ValueError: there are no classes, fewer than two, or a test image has another class than
            all training images.
    """
    splits = open_splits(root, columns)
    if len(splits) < 2:
        names = sorted(path.name for path in root.iterdir()) if root.is_dir() else []
        content = ", ".join(names[:5]) or "nothing"
        raise MissingFile(
            f"--data = {root}: expected train/CLASS/* and val/CLASS/* in it (or "
            f"{', '.join(SPLITS['val'][1:4])}), or lists with classes, train.csv and val.csv; "
            f"found {content}"
        )
    train, test = splits.values()
    if len(train.classes) < 2:
        raise Refused(
            f"--data = {root}: expected two or more classes in {train.path}, found "
            f"{len(train.classes)}; make a folder for each class"
        )
    test_labels = join_classes(train.classes, test.named_classes, test.path)
    say_shared_images(train, test)
    return LabelledImages(train, test, train.classes, train.labels(), test_labels)


def open_splits(root: Path, columns: Columns = BY_NAME) -> dict[str, ImageSource]:
    """Open any images: the splits ``train`` and ``val`` of a data set, or one source.

    Returns:
        Split to source; one source has the split ``""``.

    Raises:
        FileNotFoundError: there is no such path.
        ValueError: there is no image, or the path is of another kind.
    """
    # Two splits, or one beside nothing else; otherwise a single source.
    train = find_split(root, "train", lists=True)
    test = find_split(root, "val", lists=True)
    if train is not None and test is not None:
        _say_unused(root, train, test)
        return {
            "train": open_source(train, columns=columns),
            "val": open_source(test, columns=columns),
        }
    split = train or test
    if split is not None and class_folders(root) == [split.name]:
        return {"": open_source(split, columns=columns)}  # not one class named train
    source = open_source(root, columns=columns)
    if isinstance(source, HuggingFaceSource) and source.num_splits > 1:
        return {"train": source, "val": open_source(root, split="test", columns=columns)}
    return {"": source}


def _say_unused(root: Path, train: Path, test: Path) -> None:
    """Say once which splits beside the two are not used, such as ``test`` beside ``validation``."""
    unused = []
    for path in sorted(root.iterdir()):
        if path not in (train, test) and path.name.partition(".")[0].lower() in SPLIT_NAMES:
            unused.append(path.name)
    if unused:
        warn_once(f"{root}: {train.name} and {test.name} are used, and {', '.join(unused)} not")


def joined_labels(
    splits: Mapping[str, ImageSource],
) -> tuple[list[str], list[NDArray[np.int64]]]:
    """Return the classes of one source, or of training and test images, joined by name.

    Returns:
        Names of the classes, and for each source int64 ``(N,)``, an index into them; −1: no class.

    Raises:
        NoLabels: a source has no labels.
        Refused: a test image has another class than all training images.
    """
    train, *tests = splits.values()
    if not train.classes:
        raise NoLabels(f"{train.path} has no subfolders: expected one for each class")
    joined = [join_classes(train.classes, test.named_classes, test.path) for test in tests]
    return train.classes, [train.labels(), *joined]
