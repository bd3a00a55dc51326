"""Hugging Face data sets: their files on the disk, and their columns of images and of labels.

The package ``datasets`` opens the files one by one. Its own functions for folders would read a
``README.md`` or ``state.json``, which may name files elsewhere or addresses to fetch.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pirl_plugin.images.classes import NoLabels
from pirl_plugin.images.columns import Columns, choose
from pirl_plugin.images.folders import SPLIT_NAMES
from pirl_plugin.system.failures import Refused

_STATE = "state.json"  # of save_to_disk, in the folder of a split
_DEPTH = 3  # of folders, such as data/train/0000.parquet
ENCODED = {"bytes", "path"}
"""Keys of an image that is not decoded."""


def is_of_package(dataset: Any) -> bool:
    """Return whether it is a data set of the package ``datasets``."""
    package = sys.modules.get("datasets")  # if it is not imported, it made no data set
    return package is not None and isinstance(dataset, package.Dataset)


def find_data_files(folder: str | os.PathLike[str]) -> dict[str, list[str]]:
    """Find the files of a data set: Arrow files of ``save_to_disk``, or parquet files.

    A split of parquet files is a folder (``train/0000.parquet``), or the beginning of their names
    (``data/train-00000-of-00002.parquet``).

    Returns:
        Split to paths of files, sorted by name; the split is ``""`` if the names have none. Empty
        if there are no such files.

    Raises:
        Refused: the files are of several data sets, or a ``state.json`` names files elsewhere.
    """
    top = Path(folder)
    # Of save_to_disk: one split, or a folder for each.
    if (top / _STATE).is_file():
        return {"": _arrow_files(top)}
    saved = sorted(file.parent for file in top.glob(f"*/{_STATE}"))
    if saved:
        return {path.name: _arrow_files(path) for path in saved}
    # Parquet files: two data sets in a folder would be mixed.
    files = list(_parquet_files(top, _DEPTH, is_download=(top / "README.md").is_file()))
    splits: dict[str, list[str]] = {}
    folders: dict[Path, str] = {}  # of each data set, with one of its files
    for file in files:
        split = _split_of(file.relative_to(top))
        parent = file.parent.parent if file.parent.name == split else file.parent
        folders.setdefault(parent, file.name)
        splits.setdefault(split, []).append(str(file))
    if len(folders) > 1:
        listed = ", ".join(str(path) for path in folders)
        raise Refused(f"{folder} holds the data sets {listed}: expected one; give its folder")
    return splits


def _parquet_files(folder: Path, depth: int, is_download: bool) -> Iterator[Path]:
    """Yield the parquet files in a folder and in ``data``, folders of splits, or of a download."""
    names = sorted(os.listdir(folder)) if folder.is_dir() else []
    for name in names:
        if name.endswith(".parquet"):
            yield folder / name
    for name in names:
        is_usual = name.lower() in SPLIT_NAMES | {"data"}
        if depth > 1 and not name.startswith(".") and (is_download or is_usual):
            yield from _parquet_files(folder / name, depth - 1, is_download)


def _arrow_files(folder: Path) -> list[str]:
    """Return the files of a folder that ``save_to_disk`` wrote, in the order of the rows."""
    try:
        entries = json.loads((folder / _STATE).read_text())["_data_files"]
        names = [entry["filename"] for entry in entries]
    except (ValueError, KeyError, TypeError) as error:
        raise Refused(f"{folder / _STATE} is damaged ({error}): save the data set again") from None
    for name in names:
        if not isinstance(name, str) or os.path.basename(name) != name:
            raise Refused(f"{folder / _STATE} names {name}: expected files in its own folder")
    return [str(folder / name) for name in names]


def _split_of(file: Path) -> str:
    """Return the split that a parquet file's folder or name begins with, as it is written."""
    for word in (file.parent.name, re.split("[-._]", file.name)[0]):
        if word.lower() in SPLIT_NAMES:
            return word
    return ""


def open_data_files(files: list[str]) -> Any:
    """Open the files of a split, without a request to the hub.

    Raises:
        ImportError: the package ``datasets`` is not installed.
    """
    import datasets

    if files[0].endswith(".parquet"):
        return datasets.Dataset.from_parquet(files)
    return datasets.concatenate_datasets([datasets.Dataset.from_file(file) for file in files])


def image_column(dataset: Any, columns: Columns, place: str) -> str:
    """Return the name of the column of images.

    Raises:
        Refused: there is none, or there are several and no name is known.
    """
    import datasets

    kinds = dataset.features
    image_columns = [
        name
        for name, kind in kinds.items()
        if isinstance(kind, datasets.Image) or (isinstance(kind, dict) and set(kind) == ENCODED)
    ]
    column: str | None = columns.find("image", image_columns, place, image_columns)
    if column is None:
        raise Refused(f"{place}: {choose('image', image_columns or kinds)}")
    return column


def encoded_images(dataset: Any, column: str) -> Any:
    """Return a data set with only the encoded images: rows ``{column: {"bytes", "path"}}``.

    The package itself would decode them with all decoders of PIL.
    """
    import datasets

    return dataset.select_columns([column]).cast_column(column, datasets.Image(decode=False))


def label_column(dataset: Any, columns: Columns, place: str) -> str:
    """Return the name of the column of labels: a known name, or the only column of classes.

    Raises:
        NoLabels: there is none, or there are several and no name is known.
    """
    import datasets

    kinds = dataset.features
    scalars = [
        name
        for name, kind in kinds.items()
        if isinstance(kind, datasets.Value) and "binary" not in kind.dtype
    ]
    of_classes = [name for name, kind in kinds.items() if isinstance(kind, datasets.ClassLabel)]
    column: str | None = columns.find("label", of_classes + scalars, place, of_classes)
    if column is None:
        raise NoLabels(f"{place}: {choose('label', of_classes or kinds)}")
    return column


def labels_in(dataset: Any, column: str) -> list[Any]:
    """Return the label of each row: the name of its class, or the value of the column."""
    import datasets

    values = dataset.with_format(None).select_columns([column])[:][column]
    kind = dataset.features[column]
    if not isinstance(kind, datasets.ClassLabel):
        return list(values)
    # -1 is a missing label
    return [None if value is None or value < 0 else kind.names[value] for value in values]
