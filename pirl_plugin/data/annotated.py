"""Data sets whose images and labels stand in files of their own: VOC07 and iNaturalist-2018."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from pirl_plugin.data.names import DISK_INATURALIST18, DISK_VOC07

_VOC_LABELS = {"1": 1, "-1": 0, "0": -1}  # present, absent, difficult, as VISSL's SVMs take them


def read_voc07(folder: str, split: str) -> tuple[list[str], np.ndarray]:
    """Images and labels of PASCAL VOC 2007 classification.

    Args:
        folder: ``VOC2007``, with ``ImageSets/Main/<class>_{trainval,test}.txt`` and ``JPEGImages``.
        split: ``TRAIN`` for trainval, ``TEST`` for test.

    Returns:
        Paths relative to ``folder``, by name, and int64 ``(images, classes)``: 1 present, 0 absent,
        −1 present but difficult, which counts neither way in the test.

    Raises:
        FileNotFoundError: a list is missing.
        ValueError: the classes list different images, or a line is not an image and 1, −1 or 0.
    """
    part = "trainval" if split == "TRAIN" else "test"
    lists = sorted(Path(folder, "ImageSets", "Main").glob(f"*_{part}.txt"))
    if not lists:
        raise FileNotFoundError(f"{folder} has no ImageSets/Main/<class>_{part}.txt")
    columns: list[dict[str, int]] = []
    for file in lists:
        rows = [line.split() for line in file.read_text().splitlines() if line.strip()]
        for row in rows:
            if len(row) != 2 or row[1] not in _VOC_LABELS:
                raise ValueError(
                    f"{file} holds '{' '.join(row)}'; expected an image and 1, -1 or 0"
                )
        columns.append({name: _VOC_LABELS[label] for name, label in rows})
        if columns[-1].keys() != columns[0].keys():
            raise ValueError(f"{file} and {lists[0].name} list different images; expected the same")
    names = sorted(columns[0])
    labels = np.array([[column[name] for column in columns] for name in names], dtype=np.int64)
    return [f"JPEGImages/{name}.jpg" for name in names], labels


def read_inaturalist18(folder: str, split: str) -> tuple[list[str], np.ndarray]:
    """Images and labels of iNaturalist-2018.

    Args:
        folder: what the data set unpacks to: ``train2018.json``, ``val2018.json`` and
            ``train_val2018``.
        split: ``TRAIN``, or ``TEST`` for val.

    Returns:
        Paths relative to ``folder`` and int64 ``(images,)``, in the order of the annotations.

    Raises:
        FileNotFoundError: the annotations are missing.
        ValueError: they are not the data set's, or an image has no label.
    """
    file = Path(folder, "train2018.json" if split == "TRAIN" else "val2018.json")
    if not file.is_file():
        raise FileNotFoundError(f"{folder} has no {file.name}")
    try:
        content = json.loads(file.read_text())
        label_of = {entry["image_id"]: entry["category_id"] for entry in content["annotations"]}
        paths = [image["file_name"] for image in content["images"]]
        labels = np.array([label_of[image["id"]] for image in content["images"]], dtype=np.int64)
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(
            f"{file} cannot be read ({type(error).__name__}: {error}); expected iNaturalist-2018's "
            f"'images' and 'annotations'"
        ) from None
    return paths, labels


ANNOTATED: dict[str, Callable[[str, str], tuple[list[str], np.ndarray]]] = {
    DISK_VOC07: read_voc07,
    DISK_INATURALIST18: read_inaturalist18,
}
"""Data source → function of its folder and ``TRAIN`` or ``TEST``."""

ANNOTATED_WANTED = {
    DISK_VOC07: "VOC2007, the folder that holds ImageSets/Main and JPEGImages",
    DISK_INATURALIST18: "the folder that holds train2018.json, val2018.json and train_val2018",
}
"""Data source → what its path should be, for messages."""
