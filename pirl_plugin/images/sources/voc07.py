"""PASCAL VOC 2007 classification, as it unpacks."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pirl_plugin.images.sources.base import ImageSource
from pirl_plugin.images.sources.path_table import PathTable
from pirl_plugin.images.sources.splits import is_train

_LABELS = {"1": 1, "-1": 0, "0": -1}  # present, absent, difficult, as VISSL's SVMs take them


class VOC07Source(ImageSource):
    """Images of PASCAL VOC 2007, by name, with labels int64 (N, classes).

    A label is 1 for present, 0 for absent, −1 for present but difficult, which counts neither way
    in the test.

    Args:
        path: ``VOC2007``, with ``ImageSets/Main/<class>_{trainval,test}.txt`` and ``JPEGImages``.
        split: ``train`` for trainval, or ``test``.
        grey_size: side of the image that takes the place of one that cannot be read, pixels.

    Raises:
        FileNotFoundError: the folder or a list is missing.
        ValueError: the classes list different images, or a line is not an image and 1, −1 or 0.
    """

    wanted = "VOC2007, the folder that holds ImageSets/Main and JPEGImages"

    def __init__(
        self, path: str | os.PathLike[str], split: str = "train", grey_size: int = 224
    ) -> None:
        if not os.path.isdir(path):
            raise FileNotFoundError(self.problem(path, "is not a folder that exists"))
        part = "trainval" if is_train(split) else "test"
        lists = sorted(Path(path, "ImageSets", "Main").glob(f"*_{part}.txt"))
        if not lists:
            missing = f"has no ImageSets/Main/<class>_{part}.txt"
            raise FileNotFoundError(self.problem(path, missing))
        columns = [_read_class(file) for file in lists]
        for file, column in zip(lists, columns, strict=True):
            if column.keys() != columns[0].keys():
                raise ValueError(
                    f"{file} and {lists[0].name} list different images; expected the same"
                )
        names = sorted(columns[0])
        labels: NDArray[np.int64] = np.array(
            [[column[name] for column in columns] for name in names], dtype=np.int64
        )
        images = PathTable(f"JPEGImages/{name}.jpg" for name in names)
        super().__init__(path, images, labels=labels, grey_size=grey_size)


def _read_class(file: Path) -> dict[str, int]:
    """Label of each image for one class."""
    rows = [line.split() for line in file.read_text().splitlines() if line.strip()]
    for row in rows:
        if len(row) != 2 or row[1] not in _LABELS:
            raise ValueError(f"{file} holds '{' '.join(row)}'; expected an image and 1, -1 or 0")
    return {name: _LABELS[label] for name, label in rows}
