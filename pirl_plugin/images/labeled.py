"""Labeled training and test images: two sources, or class folders with held-out images."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pirl_plugin.images.classes import NO_CLASS, join_classes, require_class_names
from pirl_plugin.images.columns import BY_NAME, Columns
from pirl_plugin.images.filelist import FileListSource
from pirl_plugin.images.folders import TEST_FOLDERS, FolderSource, find_splits
from pirl_plugin.images.groups import hold_out_groups
from pirl_plugin.images.joined import JoinedSource
from pirl_plugin.images.opening import open_source
from pirl_plugin.images.source import ImageSource
from pirl_plugin.system.console import warn
from pirl_plugin.system.failures import Refused
from pirl_plugin.system.files import write_text
from pirl_plugin.system.text import counted, truncate

_HELD_OUT = 0.2  # fraction of each class
_LISTS = ("train.jsonl", "val.jsonl")
_MOST_NAMES = 30  # of classes, in the summary
_NO_CLASSES = frozenset({*TEST_FOLDERS, "unlabeled", "unlabelled", "unsorted"})
"""Folders, in lower case, that are not classes."""
_GROUP = "group"  # column in these lists


@dataclass
class LabeledImages:
    """Training and test images, with classes matched by name.

    Attributes:
        train: source of the training images.
        test: source of the test images.
        classes: training class names; some may be absent from the test images.
        labels: int64 (N + M,), an index into ``classes`` for each image, training images first; −1:
            unlabeled.
        held_out_of: folder with class folders that the test images are held out from; None if the
            user passed test images.
    """

    train: ImageSource
    test: ImageSource
    classes: list[str]
    labels: NDArray[np.int64]
    held_out_of: Path | None = None

    @property
    def train_labels(self) -> NDArray[np.int64]:
        """One class per training image, int64 (N,)."""
        return self.labels[: len(self.train)]

    @property
    def test_labels(self) -> NDArray[np.int64]:
        """One class per test image, int64 (M,)."""
        return self.labels[len(self.train) :]

    @cached_property
    def joined(self) -> JoinedSource:
        """All images as one source, training images first."""
        return JoinedSource("the images", [self.train, self.test])

    def summary(self) -> str:
        """Return a description in three lines, with class names."""
        return (
            f"training images: {self.train.summary()}\n"
            f"test images: {self.test.summary()}\n"
            f"{len(self.classes)} classes: {truncate(self.classes, _MOST_NAMES)}"
        )


def open_labeled(
    data: Path | None = None,
    train: Path | None = None,
    val: Path | None = None,
    columns: Columns = BY_NAME,
) -> LabeledImages:
    """Open one folder, or training and test images.

    Args:
        data: folder with ``train`` and ``val`` (or ``valid``, ``validation``, ``test``), each in
            any format; or class folders or a list, from which labeled test images are held out.
        train: training images, in any format.
        val: test images.
        columns: columns in tables and data sets, or a pattern for folders.

    Raises:
        FileNotFoundError: the images do not exist.
        ValueError: there are fewer than two classes, or a test image has a class that no training
            image has.
    """
    if data is not None:
        splits = find_splits(data) if data.is_dir() else None
        if splits is None:
            return _hold_out(data, columns)
        train, val = splits
    assert train is not None
    assert val is not None
    train_source = open_source(train, columns=columns)
    test_source = open_source(val, columns=columns)
    _check_labels(train_source, columns)
    _check_class_folders(test_source)
    shared = set(train_source.group_names) & set(test_source.group_names)
    names = sorted(filter(None, shared))
    if names:
        warn(
            f"Training and test images share {counted(len(names), 'group')}, such as {names[0]}, "
            f"so accuracies are too high."
        )
    return _labeled(train_source, test_source)


def _check_labels(source: ImageSource, columns: Columns) -> None:
    """Refuse folders and names that are not classes, and a missing group column."""
    if columns.group is not None and not any(source.group_names):
        raise Refused(
            f"`group_column` = {columns.group}: {source.path} has no such groups. Name the groups "
            f"in a folder with `pattern`."
        )
    _check_class_folders(source)
    if not isinstance(source, FolderSource):  # a folder's name is a class in any case
        require_class_names(source.classes, source.path)


def _check_class_folders(source: ImageSource) -> None:
    """Refuse folders that are not classes among class folders."""
    if not isinstance(source, FolderSource):
        return
    for name in source.classes:
        if name.lower() in _NO_CLASSES:
            raise Refused(
                f"{source.path} has the folder {name} among its class folders. If it is a class, "
                f"rename it. Otherwise, move it out; test images belong beside a folder train."
            )


def _labeled(train: ImageSource, test: ImageSource) -> LabeledImages:
    classes, train_labels = train.named_classes
    if len(classes) < 2:
        raise Refused(
            f"A classifier needs two classes, but {train.path} has {len(classes)}. Make one folder "
            f"per class, or pass a list with labels."
        )
    if list(train.channel_names) != list(test.channel_names):
        raise Refused(
            f"{train.path} has the channels {' '.join(train.channel_names) or 'of single files'}, "
            f"but {test.path} has {' '.join(test.channel_names) or 'those of single files'}."
        )
    test_labels = join_classes(classes, test.named_classes, test.path)
    return LabeledImages(train, test, classes, np.concatenate([train_labels, test_labels]))


def _hold_out(folder: Path, columns: Columns) -> LabeledImages:
    """Hold out about a fifth of each class for testing; of groups, if there are any."""
    source = open_source(folder, columns=columns)
    if not isinstance(source, (FolderSource, FileListSource)):
        raise Refused(
            f"`data` = {folder} has neither train/CLASS/* and val/CLASS/*, nor class folders, nor "
            f"is it a list with labels. For other data, pass `train` and `val`."
        )
    _check_labels(source, columns)
    groups = source.groups()
    in_groups = ""
    if groups is None:
        is_test = _hold_out_images(source)
    else:
        labels = source.labels()
        is_test = np.zeros(len(source), bool)
        is_labeled = labels != NO_CLASS
        is_test[is_labeled] = hold_out_groups(labels[is_labeled], groups[is_labeled])
        in_groups = f" in {len(set(groups[is_test])):,} of {len(set(groups)):,} groups"
    if not is_test.any():
        raise Refused(f"`data` = {folder} has only one image or group per class. Add images.")
    print(
        f"{is_test.sum():,} of {len(source):,} images in {source.path}{in_groups} are held out for "
        f"testing, about a fifth of each class. To choose them yourself, use folders train and val."
    )
    train = JoinedSource(source.path, [source], np.flatnonzero(~is_test).tolist())
    test = JoinedSource(source.path, [source], np.flatnonzero(is_test).tolist())
    return replace(_labeled(train, test), held_out_of=folder)


def _hold_out_images(source: ImageSource) -> NDArray[np.bool_]:
    """Choose about a fifth of each class by the images' names."""
    labels = source.labels()
    # A number in [0, 1) that depends only on the relative path.
    digests = (hashlib.sha256(os.fsencode(source.name_of(row))) for row in range(len(source)))
    shares = np.array([int.from_bytes(digest.digest()[:4]) / 2**32 for digest in digests])
    is_test = np.zeros(len(source), bool)
    for label in range(len(source.classes)):
        rows = np.flatnonzero(labels == label)
        is_test[rows] = shares[rows] < _HELD_OUT
        is_test[rows[np.argmin(shares[rows])]] = True
        is_test[rows[np.argmax(shares[rows])]] = False  # a single image is used for training
    return is_test


def save_split(images: LabeledImages, folder: Path) -> LabeledImages:
    """Write held-out images as lists, and return the listed images; leave other images unchanged.

    Raises:
        Refused: the folder has lists with other images or classes, from an earlier call.
    """
    if images.held_out_of is None:
        return images
    lists = [folder / name for name in _LISTS]
    for file, source in zip(lists, (images.train, images.test), strict=True):
        text = _list_images(source)
        if file.is_file() and file.read_text() != text:
            raise Refused(
                f"{images.held_out_of} has changed since {file} was written. Choose another folder "
                f"for the results."
            )
        write_text(file, text)
    columns = BY_NAME if images.train.groups() is None else Columns(group=_GROUP)
    train, test = (open_source(path, columns=columns) for path in lists)
    return replace(_labeled(train, test), held_out_of=images.held_out_of)


def _list_images(source: ImageSource) -> str:
    """Return a list of the images, with one JSON object per line."""
    names = [*source.classes, None]  # the last entry is for NO_CLASS, −1
    groups = source.groups()
    lines = []
    for row, label in enumerate(source.labels()):
        path = os.path.abspath(source.path_of(row))
        entry: dict[str, Any] = {"path": path, "label": names[label]}
        if groups is not None:
            entry[_GROUP] = str(groups[row])
        if source.channel_names:
            files = source.channel_files(row)
            entry["channels"] = {name: os.path.abspath(file) for name, file in files.items()}
        lines.append(f"{json.dumps(entry)}\n")
    return "".join(lines)
