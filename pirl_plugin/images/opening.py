"""Open any images: one source (a folder, a list, tars, a data set), or labelled splits."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import ConcatDataset, Subset

from pirl_plugin.images.classes import NoLabels, join_classes
from pirl_plugin.images.columns import BY_NAME, Columns
from pirl_plugin.images.filelist import FileListSource
from pirl_plugin.images.folders import (
    IMAGE_EXTENSIONS,
    SPLIT_NAMES,
    SPLITS,
    FolderSource,
    class_folders,
    find_images,
    find_splits,
)
from pirl_plugin.images.hugging_face import MARKS, HuggingFaceSource, find_data_files
from pirl_plugin.images.joined import JoinedSource
from pirl_plugin.images.map_source import MapSource
from pirl_plugin.images.names import (
    DISK_FILELIST,
    DISK_FOLDER,
    DISK_HF,
    DISK_INATURALIST18,
    DISK_SHARDS,
    DISK_VOC07,
    INDEX,
    LISTS,
    SOURCES,
)
from pirl_plugin.images.paper_datasets import INaturalist18Source, VOC07Source
from pirl_plugin.images.shards import ShardSource
from pirl_plugin.images.source import ImageSource, warn_once
from pirl_plugin.system.failures import MissingFile, Refused
from pirl_plugin.system.text import printable

__all__ = ["FolderSource", "ImageSource", "MapSource", "open_source"]

SOURCE_NAMES: dict[type[ImageSource], str] = {
    FolderSource: DISK_FOLDER,
    FileListSource: DISK_FILELIST,
    ShardSource: DISK_SHARDS,
    HuggingFaceSource: DISK_HF,
}
"""Source -> its name in a configuration."""

_TABLES = (".arrow", ".parquet")
_METADATA = ("metadata.jsonl", "metadata.csv")  # as in the package ``datasets``
_ARCHIVES = (".tar", ".tar.gz", ".tgz")
_THREADS = 16  # they wait for the disk
_CHUNK = 1000  # images that a thread takes at a time


def open_source(
    images: Any,
    name: str | None = None,
    *,
    split: str = "train",
    remove_prefix: str = "",
    new_prefix: str = "",
    columns: Columns = BY_NAME,
) -> ImageSource:
    """Open a source of images.

    Args:
        images: a folder (of images, of tars, or of a Hugging Face data set), a file that lists
            images, a list of folders or images, a map-style data set, or a source.
        name: one of ``names.SOURCES``; None: inferred from the path.
        split: ``train`` or ``test``, of a data set with several splits.
        remove_prefix: for a list, a prefix of the paths, which ``new_prefix`` replaces.
        new_prefix: for a list, the new prefix of all paths.
        columns: the columns of images and of labels in tables and data sets.

    Raises:
        FileNotFoundError: there is no such path.
        ValueError: there is no source of this name, or no image.
    """
    # What is no path: a source, a list of paths, or a data set.
    if isinstance(images, ImageSource):
        return images
    own_source = getattr(images, "source", None)
    if isinstance(own_source, ImageSource):  # of an ImageDataset, whose items are views
        return own_source
    kind = type(images)
    if kind is Subset:
        parts = [open_source(images.dataset, columns=columns)]
        return JoinedSource(kind.__name__, parts, images.indices)
    if kind is ConcatDataset:
        parts = [open_source(part, columns=columns) for part in images.datasets]
        return JoinedSource(kind.__name__, parts)
    if isinstance(images, (list, tuple)) and images and isinstance(images[0], (str, os.PathLike)):
        return _source_of_paths(images)
    if not isinstance(images, (str, os.PathLike)):
        return MapSource(images, columns)
    # A path: its name says which source it is, or else its content.
    path = os.path.expanduser(images)
    if name is None:
        if os.path.isfile(path) and path.lower().endswith(IMAGE_EXTENSIONS):
            return _source_of_paths([path])
        name, path = _recognize(path)
    if name == DISK_FOLDER:
        return FolderSource(path)
    if name == DISK_FILELIST:
        return FileListSource(path, remove_prefix, new_prefix, columns)
    if name == DISK_SHARDS:
        return ShardSource(path)
    if name == DISK_HF:
        return HuggingFaceSource(path, split, columns)
    if name == DISK_VOC07:
        return VOC07Source(path, split)
    if name == DISK_INATURALIST18:
        return INaturalist18Source(path, split)
    raise Refused(f"data source {name!r}: expected one of {', '.join(SOURCES)}")


def _source_of_paths(paths: list[Any] | tuple[Any, ...]) -> ImageSource:
    """Open a list of folders, or of images."""
    # A few paths tell whether the list is of folders or of images.
    first = paths[:8]
    if not any(map(os.path.exists, first)):
        raise MissingFile(f"{paths[0]}: expected a folder or an image that exists")
    images: Iterable[str] = map(os.fspath, paths)
    if any(map(os.path.isdir, first)):
        images = chain.from_iterable(FolderSource(folder).paths() for folder in images)
    source = ImageSource("the list", images, root="")
    source.say_repeated()
    return source


def _recognize(path: str) -> tuple[str, str]:
    """Return the name of the source that fits a path, and its path."""
    if os.path.isdir(path):
        for list_name in _METADATA:
            images = os.path.join(path, list_name)
            if os.path.isfile(images) and len(class_folders(path)) < 2:
                return DISK_FILELIST, images
        has_tars = False
        may_be_data_set = False
        for name in os.listdir(path):
            has_tars |= name == INDEX or name.endswith(_ARCHIVES)
            may_be_data_set |= name.lower() in MARKS or name.endswith(".parquet")
        if has_tars and _no_image(path):
            return DISK_SHARDS, path
        if may_be_data_set:  # only then, its folders are searched for the files of one
            files = list(chain.from_iterable(find_data_files(path).values()))
            if files and all(map(_no_image, set(map(os.path.dirname, files)))):
                return DISK_HF, path
        return DISK_FOLDER, path
    if path.endswith(_TABLES):
        return DISK_HF, path
    if path.lower().endswith(LISTS):
        return DISK_FILELIST, path
    if os.path.exists(path):
        remedy = "; unzip it, and give its folder" if path.lower().endswith(".zip") else ""
        raise Refused(
            f"{path}: expected an image, a folder, a .parquet file, or a list of images, a file "
            f"*{', *'.join(LISTS)}{remedy}"
        )
    return DISK_FOLDER, path  # which says that there is none


def _no_image(folder: str) -> bool:
    """Return whether a folder holds no image: beside images, no other file tells what it is."""
    return not any(find_images(folder))


@dataclass(frozen=True)
class LabelledImages:
    """Training and test images, whose classes are joined by name.

    Attributes:
        train: source of the training images.
        test: source of the test images.
        classes: names of the classes of the training images; the test images may lack some.
        labels: int64 (N + M,), an index into ``classes`` for each image, those of the training
            images first; −1: no class.
    """

    train: ImageSource
    test: ImageSource
    classes: list[str]
    labels: NDArray[np.int64]

    @property
    def train_labels(self) -> NDArray[np.int64]:
        """Class of each training image, int64 (N,)."""
        return self.labels[: len(self.train)]

    @property
    def test_labels(self) -> NDArray[np.int64]:
        """Class of each test image, int64 (M,)."""
        return self.labels[len(self.train) :]


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
    classes, train_labels, _ = train.named_classes
    if len(classes) < 2:
        raise Refused(
            f"--data = {root}: expected two or more classes in {train.path}, found "
            f"{len(classes)}; make a folder for each class"
        )
    test_labels = join_classes(classes, test.named_classes, test.path)
    _say_shared(train, test)
    return LabelledImages(train, test, classes, np.concatenate([train_labels, test_labels]))


def open_splits(root: Path, columns: Columns = BY_NAME) -> dict[str, ImageSource]:
    """Open any images: the splits ``train`` and ``val`` of a data set, or one source.

    Returns:
        Split to source; one source has the split ``""``.

    Raises:
        FileNotFoundError: there is no such path.
        ValueError: there is no image, or the path is of another kind.
    """
    # Two splits, or one beside nothing else; otherwise a single source.
    train, test = find_splits(root, lists=True)
    if train is not None and test is not None:
        unused = []
        for path in sorted(root.iterdir()):
            is_split = path.name.partition(".")[0].lower() in SPLIT_NAMES
            if is_split and path not in (train, test):
                unused.append(path.name)
        if unused:  # such as ``test`` beside ``validation``
            warn_once(f"{root}: {train.name} and {test.name} are used, and {', '.join(unused)} not")
        return {
            "train": open_source(train, columns=columns),
            "val": open_source(test, columns=columns),
        }
    path = train or test or root
    source = open_source(path, columns=columns)
    if isinstance(source, HuggingFaceSource) and source.num_splits > 1:
        return {"train": source, "val": open_source(path, split="test", columns=columns)}
    return {"": source}


def _say_shared(train: ImageSource, test: ImageSource) -> None:
    """Count once, in the log, the test images that are training images too.

    Only files whose size occurs in both are read.
    """
    with ThreadPool(_THREADS) as threads:
        train_sizes = np.array(threads.map(train.size_of, range(len(train)), _CHUNK))
        test_sizes = np.array(threads.map(test.size_of, range(len(test)), _CHUNK))
        common = np.intersect1d(train_sizes[train_sizes >= 0], test_sizes[test_sizes >= 0])
        train_rows = np.flatnonzero(np.isin(train_sizes, common)).tolist()
        test_rows = np.flatnonzero(np.isin(test_sizes, common)).tolist()
        of_train = threads.map(partial(_digest_of_image, train), train_rows, _CHUNK)
        of_test = threads.map(partial(_digest_of_image, test), test_rows, _CHUNK)
        threads.close()
        threads.join()  # before a loader forks its workers
    digests = set(of_train) - {None}
    is_shared = list(map(digests.__contains__, of_test))
    if any(is_shared):
        first = printable(test.path_of(test_rows[is_shared.index(True)]))
        warn_once(
            f"{test.path}: {sum(is_shared)} of {len(test)} test images are training images, too, "
            f"so that accuracies are too high: {first} is the first"
        )


def _digest_of_image(source: ImageSource, row: int) -> bytes | None:
    """Return the SHA-1 of an image's file; None if it cannot be read."""
    try:
        content = source.read(row)
    except (OSError, ValueError):
        return None
    if isinstance(content, torch.Tensor):
        return None
    return hashlib.sha1(content, usedforsecurity=False).digest()


def joined_labels(splits: Mapping[str, ImageSource]) -> tuple[list[str], NDArray[np.int64]]:
    """Return the classes of one source, or of training and test images, joined by name.

    Returns:
        Names of the classes, and int64 ``(images,)``, an index into them for each image, those of
        the training images first; −1: no class.

    Raises:
        NoLabels: a source has no labels.
        Refused: a test image has another class than all training images.
    """
    train, *tests = splits.values()
    if not train.classes:
        raise NoLabels(f"{train.path} has no subfolders: expected one for each class")
    joined = [join_classes(train.classes, test.named_classes, test.path) for test in tests]
    return train.classes, np.concatenate([train.labels(), *joined])
