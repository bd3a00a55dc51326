"""The paper's data sets that have their own layouts: PASCAL VOC 2007 and iNaturalist 2018."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pirl_plugin.images.columns import Entry
from pirl_plugin.images.source import ImageSource
from pirl_plugin.system.failures import MissingFile

_VOC_LABELS = {"1": 1, "-1": 0, "0": -1}  # VOC's labels -> labels for VISSL's SVMs


class NumberedSource(ImageSource):
    """A data set from the paper with numbers as labels, not names."""

    _numbers: NDArray[np.int64]

    def labels(self) -> NDArray[np.int64]:
        """Return the data set's own class numbers, int64 (N,) or (N, classes)."""
        return self._numbers


class VOC07Source(NumberedSource):
    """PASCAL VOC 2007 images, by name, with labels int64 (N, classes).

    A label is 1 for present, 0 for absent, −1 for present but difficult; testing ignores −1.

    Args:
        path: ``VOC2007``, with ``ImageSets/Main/<class>_{trainval,test}.txt`` and ``JPEGImages``.
        split: ``train`` for trainval, or ``test``.

    Raises:
        FileNotFoundError: the lists do not exist.
    """

    def __init__(self, path: str | os.PathLike[str], split: str = "train") -> None:
        part = "trainval" if split == "train" else "test"
        columns = []
        for file in sorted(Path(path, "ImageSets", "Main").glob(f"*_{part}.txt")):
            rows = [line.split() for line in file.read_text("utf-8").splitlines() if line.strip()]
            columns.append({name: _VOC_LABELS[label] for name, label in rows})
        if not columns:
            raise MissingFile(
                f"{os.fspath(path)} has no ImageSets/Main/<class>_{part}.txt. Pass the folder "
                f"VOC2007, which contains ImageSets/Main and JPEGImages."
            )
        names = sorted(columns[0])
        labels = np.array([[column[name] for column in columns] for name in names], np.int64)
        super().__init__(path, (Entry(f"JPEGImages/{name}.jpg") for name in names))
        self._numbers = labels


class INaturalist18Source(NumberedSource):
    """iNaturalist-2018 images, in annotation order, with labels int64 (N,).

    Args:
        path: folder with ``train2018.json``, ``val2018.json`` and ``train_val2018``.
        split: ``train``, or ``test`` for val.

    Raises:
        FileNotFoundError: the annotations are missing.
    """

    def __init__(self, path: str | os.PathLike[str], split: str = "train") -> None:
        file = Path(path, "train2018.json" if split == "train" else "val2018.json")
        content = json.loads(file.read_bytes())
        label_of = {entry["image_id"]: entry["category_id"] for entry in content["annotations"]}
        super().__init__(path, (Entry(image["file_name"]) for image in content["images"]))
        self._numbers = np.array([label_of[image["id"]] for image in content["images"]], np.int64)
