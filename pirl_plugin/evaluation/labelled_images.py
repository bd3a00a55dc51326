"""The images of the evaluations: any source, with the splits and classes of labelled data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pirl_plugin.images.datasets import HuggingFaceSource
from pirl_plugin.images.filelist import FileListSource
from pirl_plugin.images.folders import SPLITS, FolderSource, find_split
from pirl_plugin.images.names import DISK_FILELIST, DISK_FOLDER, DISK_HF, DISK_SHARDS
from pirl_plugin.images.shards import ShardSource
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
    """Training and test images with the same classes.

    Attributes:
        train: source of the training images.
        test: source of the test images.
        classes: names of the classes 0, 1, …; if they have no names, all numbers up to the largest.
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
    check_same_classes(root, train, test)
    used = used_classes(train)
    if len(used) < 2:
        raise Refused(
            f"--data = {root}: expected two or more classes in {train.path}, found {len(used)}; "
            f"make a folder for each class"
        )
    classes = train.classes
    if classes is None:
        largest = int(used[-1])
        classes = [str(number) for number in range(largest + 1)]
    return LabelledImages(train, test, classes)


def check_same_classes(root: Path, train: ImageSource, test: ImageSource) -> None:
    """Check that a label means the same in both splits, and that both have the same classes.

    Names are numbered in their order, for each split by itself. So both splits need all names.
    Numbers mean the same in any split, and the test images may lack some.

    Raises:
        ValueError: they have different classes, or one has none.
    """
    of_train = used_classes(train)
    of_test = used_classes(test)
    if train.classes is None and test.classes is None:
        fits = set(of_test) <= set(of_train)
        different = [name for name in of_test if name not in of_train]
    else:
        fits = of_train == of_test
        different = sorted(set(of_train) ^ set(of_test))
    if not fits:
        raise Refused(
            f"--data = {root}: expected the same classes in {train.path} and {test.path}, found "
            f"{len(of_train)} and {len(of_test)}; look at {', '.join(different[:3])}"
        )


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


def labels_of(source: ImageSource) -> NDArray[np.int64] | None:
    """Return the class of each image; None if the source has no classes."""
    if source.classes == []:  # a folder without class folders
        return None
    try:
        return source.labels()
    except Refused:  # a list or a data set without labels
        return None


def used_classes(source: ImageSource) -> list[str]:
    """Return the names of the classes 0, 1, …; for classes without names, the used numbers.

    Raises:
        ValueError: the source has no classes.
    """
    labels = source.labels()  # a list without labels finds its classes here
    if source.classes is not None:
        return source.classes
    return [str(label) for label in np.unique(labels[labels >= 0]).tolist()]
