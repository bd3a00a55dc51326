"""Data sets with special layouts: PASCAL VOC 2007, iNaturalist 2018, Hugging Face."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pirl_plugin.images.columns import BY_NAME, Columns
from pirl_plugin.images.folders import SPLIT_NAMES, SPLITS
from pirl_plugin.images.hugging_face import find_data_files, open_data_files
from pirl_plugin.images.map_source import MapSource
from pirl_plugin.images.source import ImageSource
from pirl_plugin.system.failures import MissingFile, Refused

_VOC_LABELS = {"1": 1, "-1": 0, "0": -1}  # VOC's labels -> labels of VISSL's SVMs


class NumberedSource(ImageSource):
    """A data set of the paper whose labels are numbers, not names."""

    _numbers: NDArray[np.int64]

    def labels(self) -> NDArray[np.int64]:
        """Return the data set's own numbers of classes, int64 (N,), or (N, classes)."""
        return self._numbers


class VOC07Source(NumberedSource):
    """Images of PASCAL VOC 2007, by name, with labels int64 (N, classes).

    A label is 1 for present, 0 for absent, −1 for present but difficult; the test ignores −1.

    Args:
        path: ``VOC2007``, with ``ImageSets/Main/<class>_{trainval,test}.txt`` and ``JPEGImages``.
        split: ``train`` for trainval, or ``test``.

    Raises:
        FileNotFoundError: there are no such lists.
    """

    def __init__(self, path: str | os.PathLike[str], split: str = "train") -> None:
        part = "trainval" if split == "train" else "test"
        columns = []
        for file in sorted(Path(path, "ImageSets", "Main").glob(f"*_{part}.txt")):
            rows = [line.split() for line in file.read_text().splitlines() if line.strip()]
            columns.append({name: _VOC_LABELS[label] for name, label in rows})
        if not columns:
            raise MissingFile(
                f"{os.fspath(path)} has no ImageSets/Main/<class>_{part}.txt: expected the "
                f"folder VOC2007, which holds ImageSets/Main and JPEGImages"
            )
        names = sorted(columns[0])
        labels = np.array([[column[name] for column in columns] for name in names], np.int64)
        super().__init__(path, (f"JPEGImages/{name}.jpg" for name in names))
        self._numbers = labels


class INaturalist18Source(NumberedSource):
    """Images of iNaturalist-2018, in the order of the annotations, with labels int64 (N,).

    Args:
        path: folder with ``train2018.json``, ``val2018.json`` and ``train_val2018``.
        split: ``train``, or ``test`` for val.

    Raises:
        FileNotFoundError: the annotations are missing.
    """

    def __init__(self, path: str | os.PathLike[str], split: str = "train") -> None:
        file = Path(path, "train2018.json" if split == "train" else "val2018.json")
        content = json.loads(file.read_text())
        label_of = {entry["image_id"]: entry["category_id"] for entry in content["annotations"]}
        super().__init__(path, (image["file_name"] for image in content["images"]))
        self._numbers = np.array([label_of[image["id"]] for image in content["images"]], np.int64)


class HuggingFaceSource(MapSource):
    """Images of a Hugging Face data set on disk: Arrow, as ``save_to_disk`` writes, or parquet.

    Args:
        path: the folder, as saved or as downloaded, or a parquet file.
        split: ``train`` or ``test``, if it has several splits; see ``folders.SPLITS``.
        columns: names of the columns of images and of labels.

    Raises:
        ImportError: the package ``datasets`` is not installed.
        ValueError: there is no such split, or no column of images.
    """

    def __init__(
        self, path: str | os.PathLike[str], split: str = "train", columns: Columns = BY_NAME
    ) -> None:
        place = os.fspath(path)
        files_of_split = find_data_files(place) if os.path.isdir(place) else {"": [place]}
        self.num_splits = len(files_of_split)
        name = _split_of(files_of_split, "train" if split == "train" else "val", place)
        if self.num_splits > 1:
            logging.root.info(f"{place}: the split {name} of {', '.join(files_of_split)}")
        self._files = files_of_split[name]
        self._split = name
        super().__init__(open_data_files(self._files), columns=columns, path=place)

    def path_of(self, row: int) -> str:
        """Return ``PATH/SPLIT[ROW]``, for messages."""
        place = os.path.join(self.path, self._split) if self._split else self.path
        return f"{place}[{row}]"

    def files(self) -> list[str]:
        """Return the Arrow or parquet files."""
        return self._files


def _split_of(splits: Mapping[str, object], split: str, folder: str) -> str:
    """Return the name of a split; the only one is taken, but a training split for no test."""
    is_a_split = Path(folder).name.lower() in SPLIT_NAMES
    if len(splits) == 1 and (split == "train" or "" in splits or is_a_split):
        return next(iter(splits))
    for usual_name in SPLITS[split]:
        for name in splits:
            if name.lower() == usual_name:
                return name
    raise Refused(
        f"{folder} has the splits {', '.join(splits) or 'none'}: expected one of "
        f"{', '.join(SPLITS[split])}"
    )
