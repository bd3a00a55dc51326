"""The columns of images and of classes in Hugging Face data sets."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pirl_plugin.system.failures import Refused


def is_plain(dataset: Any) -> bool:
    """Return whether it is a data set of the package ``datasets``, without a format of its own."""
    package = sys.modules.get("datasets")  # if it is not imported, it made no data set
    if package is None or not isinstance(dataset, package.Dataset):
        return False
    return dataset.format["type"] is None


def image_column(dataset: Any) -> str | None:
    """Return the name of the column of images, ``image`` if there are several; None if none."""
    import datasets

    kinds = dataset.features
    columns = [name for name, kind in kinds.items() if isinstance(kind, datasets.Image)]
    return "image" if "image" in columns else next(iter(columns), None)


def encoded_images(dataset: Any, column: str) -> Any:
    """Return a data set with only the encoded images: rows ``{column: {"bytes", "path"}}``.

    The package itself would decode them with all decoders of PIL.
    """
    import datasets

    return dataset.select_columns([column]).cast_column(column, datasets.Image(decode=False))


def class_names(dataset: Any) -> list[str] | None:
    """Return the names of the first column of classes; None if there is none."""
    import datasets

    for kind in dataset.features.values():
        if isinstance(kind, datasets.ClassLabel):
            return list(kind.names)
    return None


def labels(dataset: Any) -> NDArray[np.int64]:
    """Return the class of each row, int64 (N,): the first column of classes, or ``label``.

    Raises:
        ValueError: there is no such column, or a row has no class.
    """
    import datasets

    kinds = dataset.features
    columns = [name for name, kind in kinds.items() if isinstance(kind, datasets.ClassLabel)]
    for name in ("label", "labels"):  # older data sets have plain integers
        if "int" in str(getattr(kinds.get(name), "dtype", "")):
            columns.append(name)
    if not columns:
        raise Refused(
            f"the data set has the columns {', '.join(kinds)}: expected a column of classes, or "
            f"whole numbers in label or labels"
        )
    values = dataset[columns[0]]
    for row, value in enumerate(values):
        if value is None:
            raise Refused(f"row {row} of the data set has no {columns[0]}: expected a class")
    return np.asarray(values, np.int64)
