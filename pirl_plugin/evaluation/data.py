"""The images of the evaluations: any source, with the splits and classes of labelled data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pirl_plugin.failures import MissingFile, Refused
from pirl_plugin.images.datasets import HuggingFaceSource
from pirl_plugin.images.filelist import FileListSource
from pirl_plugin.images.folders import SPLITS, FolderSource, class_folders, find_split
from pirl_plugin.images.names import DISK_FILELIST, DISK_FOLDER, DISK_HF, DISK_SHARDS
from pirl_plugin.images.shards import ShardSource
from pirl_plugin.images.sources import ImageSource, open_source

SOURCE_NAMES: dict[type[ImageSource], str] = {
    FolderSource: DISK_FOLDER,
    FileListSource: DISK_FILELIST,
    ShardSource: DISK_SHARDS,
    HuggingFaceSource: DISK_HF,
}
"""Source -> its name in a configuration."""


@dataclass(frozen=True)
class LabelledImages:
    """Training and test images with the same classes.

    Attributes:
        train: source of the training images.
        test: source of the test images.
        classes: names of the classes 0, 1, …; the numbers themselves if they have no names.
    """

    train: ImageSource
    test: ImageSource
    classes: list[str]


def open_labelled(root: Path) -> LabelledImages:
    """Open training and test images: two folders, two lists, or the splits of a data set.

    Args:
        root: folder of ``train`` and ``val`` (or ``validation``, ``test``, …: see
            :data:`pirl_plugin.images.folders.SPLITS`). Each is a folder of class folders, of tars
            or of a Hugging Face data set, or a list such as ``train.csv``. Or a Hugging Face data
            set with two splits.

    Raises:
        FileNotFoundError: a split is missing.
        ValueError: an image has no class, there are fewer than two classes, or the splits have
            different classes.
    """
    splits = open_splits(root)
    if len(splits) < 2:
        names = sorted(path.name for path in root.iterdir()) if root.is_dir() else []
        content = ", ".join(names[:5]) or "nothing"
        raise MissingFile(
            f"--data = {root}: expected train/CLASS/* and val/CLASS/* in it (or "
            f"{', '.join(SPLITS['val'][1:4])}), or lists with classes, train.csv and val.csv; "
            f"found {content}"
        )
    train, test = splits.values()
    class_names = [class_names_of(source) for source in (train, test)]
    if class_names[0] != class_names[1]:
        different = sorted(set(class_names[0]) ^ set(class_names[1]))
        raise Refused(
            f"--data = {root}: expected the same classes in {train.path} and {test.path}, found "
            f"{len(class_names[0])} and {len(class_names[1])}; look at {', '.join(different[:3])}"
        )
    if len(class_names[0]) < 2:
        raise Refused(
            f"--data = {root}: expected two or more classes in {train.path}, found "
            f"{len(class_names[0])}; make a folder for each class"
        )
    return LabelledImages(train, test, class_names[0])


def open_splits(root: Path) -> dict[str, ImageSource]:
    """Open any images: the splits ``train`` and ``val`` of a data set, or one source.

    Returns:
        Split to source; one source has the split ``""``.

    Raises:
        FileNotFoundError: there is no such path.
        ValueError: there are fewer than two images, or the path is of another kind.
    """
    paths = {split: find_split(root, split, lists=True) for split in SPLITS}
    sources = {split: open_source(path) for split, path in paths.items() if path is not None}
    if len(sources) == len(paths):
        return sources
    source = open_source(root)
    if isinstance(source, HuggingFaceSource) and source.num_splits > 1:
        return {"train": source, "val": open_source(root, split="test")}
    return {"": source}


def num_classes(images: LabelledImages) -> int:
    """Return the number of a classifier's outputs: one more than the largest class."""
    labels = [*images.train.labels(), *images.test.labels()]
    return max(len(images.classes), int(max(labels)) + 1)


def labels_of(source: ImageSource) -> NDArray[np.int64] | None:
    """Return the class of each image; None if the source has no classes."""
    if isinstance(source, FolderSource) and not class_folders(source.path):
        return None
    try:
        return source.labels()
    except Refused:  # a list or a data set without labels
        return None


def class_names_of(source: ImageSource) -> list[str]:
    """Return the names of the classes 0, 1, …; for classes without names, the used numbers.

    Raises:
        ValueError: the source has no classes.
    """
    if isinstance(source, FolderSource):
        return class_folders(source.path)
    labels = source.labels()
    if isinstance(source, HuggingFaceSource):
        for kind in source.dataset.features.values():
            if hasattr(kind, "names"):  # the first column of classes, which labels() reads
                return list(kind.names)
    return source.classes or [str(label) for label in np.unique(labels[labels >= 0]).tolist()]
