"""Data sets with special layouts: PASCAL VOC 2007, iNaturalist 2018, Hugging Face."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pirl_plugin.images.folders import SPLITS
from pirl_plugin.images.hugging_face import class_names, image_column
from pirl_plugin.images.map_source import MapSource
from pirl_plugin.images.shared import PathTable
from pirl_plugin.images.source import ImageSource
from pirl_plugin.system.failures import MissingFile, Refused

_VOC_LABELS = {"1": 1, "-1": 0, "0": -1}  # VOC's labels -> labels of VISSL's SVMs


class VOC07Source(ImageSource):
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
        super().__init__(path, PathTable(f"JPEGImages/{name}.jpg" for name in names), labels=labels)


class INaturalist18Source(ImageSource):
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
        images = PathTable(image["file_name"] for image in content["images"])
        labels = np.array([label_of[image["id"]] for image in content["images"]], np.int64)
        super().__init__(path, images, labels=labels)


class HuggingFaceSource(MapSource):
    """Images of a Hugging Face data set on disk: Arrow, as ``save_to_disk`` writes, or parquet.

    Args:
        path: the folder, or a parquet file.
        split: ``train`` or ``test``, if it has several splits; see ``folders.SPLITS``.

    Raises:
        ImportError: the package ``datasets`` is not installed.
        ValueError: there is no such split, or no column of images.
    """

    def __init__(self, path: str | os.PathLike[str], split: str = "train") -> None:
        import datasets

        folder = os.fspath(path)
        dataset: Any
        self.num_splits = 1
        if os.path.isfile(folder):
            dataset = datasets.Dataset.from_parquet(folder)
        elif {"dataset_dict.json", "state.json"} & set(os.listdir(folder)):  # of save_to_disk
            dataset = datasets.load_from_disk(folder)
        else:  # parquet files
            dataset = datasets.load_dataset(folder)
        if isinstance(dataset, dict):
            name = _split_of(dataset, "train" if split == "train" else "val", folder)
            logging.root.info(f"{folder}: the split {name} of {', '.join(dataset)}")
            self.num_splits = len(dataset)
            dataset = dataset[name]
        if image_column(dataset) is None:
            raise Refused(
                f"{folder} has the columns {', '.join(dataset.features)}: expected a column of "
                f"images"
            )
        super().__init__(dataset)
        self.path = folder
        self.classes = class_names(dataset)


def _split_of(dataset: Mapping[str, Any], split: str, folder: str) -> str:
    is_a_split = any(Path(folder).name.lower() in names for names in SPLITS.values())
    if is_a_split and len(dataset) == 1:  # `datasets` takes parquet files in val/ for a train split
        return next(iter(dataset))
    for usual_name in SPLITS[split]:
        for name in dataset:
            if name.lower() == usual_name:
                return name
    raise Refused(
        f"{folder} has the splits {', '.join(dataset)}: expected one of {', '.join(SPLITS[split])}"
    )
