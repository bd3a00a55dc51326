"""Data sets in layouts of their own: PASCAL VOC 2007, iNaturalist 2018, Hugging Face."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pirl_plugin.images.shared import PathTable
from pirl_plugin.images.sources import ImageSource, MapSource

_VOC_LABELS = {"1": 1, "-1": 0, "0": -1}  # present, absent, difficult, as VISSL's SVMs take them


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

    def __init__(
        self, path: str | os.PathLike[str], split: str = "train", grey_size: int = 224
    ) -> None:
        part = "trainval" if split.lower() == "train" else "test"
        lists = sorted(Path(path, "ImageSets", "Main").glob(f"*_{part}.txt"))
        if not lists:
            raise FileNotFoundError(
                f"{os.fspath(path)} has no ImageSets/Main/<class>_{part}.txt: expected the "
                f"folder VOC2007, which holds ImageSets/Main and JPEGImages"
            )
        columns = [_read_class(file) for file in lists]
        names = sorted(columns[0])
        for file, column in zip(lists, columns, strict=True):
            if column.keys() != columns[0].keys():
                raise ValueError(f"{file} and {lists[0].name} list different images")
        labels: NDArray[np.int64] = np.array(
            [[column[name] for column in columns] for name in names], dtype=np.int64
        )
        images = PathTable(f"JPEGImages/{name}.jpg" for name in names)
        super().__init__(path, images, labels=labels, grey_size=grey_size)


def _read_class(file: Path) -> dict[str, int]:
    """Label of each image for one class."""
    rows = [line.split() for line in file.read_text().splitlines() if line.strip()]
    for row in rows:
        if len(row) != 2 or row[1] not in _VOC_LABELS:
            raise ValueError(f"{file} holds '{' '.join(row)}': expected an image and 1, -1 or 0")
    return {name: _VOC_LABELS[label] for name, label in rows}


class INaturalist18Source(ImageSource):
    """Images of iNaturalist-2018, in the order of the annotations, with labels int64 (N,).

    Args:
        path: what the data set unpacks to: ``train2018.json``, ``val2018.json`` and
            ``train_val2018``.
        split: ``train``, or ``test`` for val.
        grey_size: side of the image that takes the place of one that cannot be read, pixels.

    Raises:
        FileNotFoundError: the annotations are missing.
        ValueError: they are not the data set's, or an image has no label.
    """

    def __init__(
        self, path: str | os.PathLike[str], split: str = "train", grey_size: int = 224
    ) -> None:
        file = Path(path, "train2018.json" if split.lower() == "train" else "val2018.json")
        if not file.is_file():
            raise FileNotFoundError(
                f"{os.fspath(path)} has no {file.name}: expected the folder that holds "
                f"train2018.json, val2018.json and train_val2018"
            )
        try:
            content = json.loads(file.read_text())
            label_of = {entry["image_id"]: entry["category_id"] for entry in content["annotations"]}
            images = PathTable(image["file_name"] for image in content["images"])
            labels = np.array([label_of[image["id"]] for image in content["images"]], np.int64)
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(
                f"{file} cannot be read ({type(error).__name__}: {error}): expected "
                f"iNaturalist-2018's 'images' and 'annotations'"
            ) from None
        super().__init__(path, images, labels=labels, grey_size=grey_size)


class HuggingFaceSource(MapSource):
    """Images of a Hugging Face data set on disk: Arrow, as ``save_to_disk`` writes, or parquet.

    Args:
        path: the folder, or a parquet file.
        split: ``train`` or ``test``, where it holds several (``validation`` serves as ``test``).
        grey_size: side of the image that takes the place of one that cannot be read, pixels.

    Raises:
        ValueError: the package ``datasets`` is missing, or the folder holds no column of images.
    """

    def __init__(
        self, path: str | os.PathLike[str], split: str = "train", grey_size: int = 224
    ) -> None:
        try:
            import datasets
        except ImportError:
            raise ValueError(f"{os.fspath(path)}: reading it needs pip install datasets") from None
        folder = Path(path)
        if (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file():
            found: Any = datasets.load_from_disk(str(folder))
        else:
            files = [str(f) for f in sorted(folder.rglob("*.parquet"))] or [str(folder)]
            splits = {
                name: [f for f in files if name in Path(f).name] for name in ("train", "test")
            }
            splits["test"] = splits["test"] or [f for f in files if "valid" in Path(f).name]
            chosen = splits.get(split.lower()) or (files if not any(splits.values()) else [])
            found = datasets.Dataset.from_parquet(chosen)
        if isinstance(found, dict):
            names = [split.lower(), *(["validation"] if split.lower() == "test" else [])]
            found = next((found[name] for name in names if name in found), None)
        if found is None:
            raise ValueError(f"{os.fspath(path)} has no split {split.lower()}")
        features = found.features
        images = [name for name, kind in features.items() if isinstance(kind, datasets.Image)]
        if not images:
            raise ValueError(
                f"{os.fspath(path)} has {', '.join(features)}: expected a column of images"
            )
        kinds = [name for name, kind in features.items() if isinstance(kind, datasets.ClassLabel)]
        self._class = next((n for n in (*kinds, "label", "labels") if n in features), None)
        self._features = features
        self._all = found
        decoded = found.select_columns(images[:1]).cast_column(
            images[0], datasets.Image(decode=False)
        )
        super().__init__(decoded, images[0], grey_size)
        self.path = os.fspath(path)

    def pixels(self, row: int) -> torch.Tensor:
        """One image, uint8 (3, H, W)."""
        return super().pixels(int(row))

    def labels(self) -> NDArray[np.int64]:
        """Class of each image, int64 (N,).

        Raises:
            ValueError: there is no column of classes.
        """
        if self._class is None:
            raise ValueError(f"{self.path} has no column of classes")
        return np.asarray(self._all[self._class], dtype=np.int64)

    def class_numbers(self) -> dict[str, int]:
        """Number of each class by its name."""
        names = getattr(self._features.get(self._class), "names", None) or []
        return {name: number for number, name in enumerate(names)}
