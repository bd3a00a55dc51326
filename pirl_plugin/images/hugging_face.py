"""Images in a Hugging Face data set, in memory or on disk.

The package ``datasets`` opens files on disk one by one. Its own functions for folders would read a
``README.md`` or ``state.json``, which may name files elsewhere or URLs to fetch.
"""

from __future__ import annotations

import glob
import os
import sys
from typing import Any

from pirl_plugin.images.classes import (
    MISSING_VALUES,
    Classes,
    NoLabels,
    name_classes,
    natural_order,
)
from pirl_plugin.images.columns import BY_NAME, Columns, column_hint
from pirl_plugin.images.decode import UnreadableImageError
from pirl_plugin.images.map_source import MapSource
from pirl_plugin.images.names import DISK_HF
from pirl_plugin.system.console import warn_once
from pirl_plugin.system.failures import MissingFile, Refused

STATE = "state.json"
"""Name of the file that ``save_to_disk`` writes into a data set's folder."""
SAVED_SPLITS = "dataset_dict.json"
"""Name of the file that ``save_to_disk`` writes beside the folders of several splits."""


class HuggingFaceSource(MapSource):
    """Images in a data set from the package ``datasets``: image files or arrays.

    Args:
        dataset: the data set.
        columns: names of the image, label and group columns.
        path: the data set's name in messages; None: its class name.

    Raises:
        ValueError: there is no image column, or the data set has its own transform.
    """

    kind = "Hugging Face data set"

    def __init__(self, dataset: Any, columns: Columns = BY_NAME, path: str | None = None) -> None:

        super().__init__(dataset, columns, path)
        if dataset.format["type"] == "custom":
            raise Refused(
                f"{self.path} has its own transform. Remove it with data.with_format(None), "
                f"and pass an image transform as the views."
            )
        self._key = self._find_column("image")
        self._items = self._rows_of(self._key)

    def _rows_of(self, column: str) -> Any:
        """Return one column's rows as Arrow tables.

        In its other formats, the package decodes images and sounds, and fetches URLs, for any
        column that a file declares as such.
        """
        return self.dataset.with_format("arrow").select_columns([column])

    def _values_of(self, column: str) -> list[Any]:
        return self._rows_of(column)[:].column(0).to_pylist()

    def _image_in(self, item: Any) -> Any:
        """Return the image in a row: the content of a file, or an array.

        Args:
            item: the row as an Arrow table, with the image column.

        Raises:
            OSError: the file cannot be read.
            UnreadableImageError: the row has no image.
        """
        import pyarrow

        value = item.column(0)[0]
        if isinstance(value, pyarrow.ExtensionScalar):  # an array of fixed shape
            value = value.value
        if isinstance(value, pyarrow.ListScalar) and value.is_valid:
            return _array_in(value.values)
        return super()._image_in({self._key: value.as_py()})

    def _find_column(self, kind: str) -> str:
        """Return the image or label column: a recognized name, or the only column of this type.

        Args:
            kind: ``image`` or ``label``.

        Raises:
            Refused: there is none, or several without a recognized name; ``NoLabels`` for labels.
        """
        import datasets

        type_of_kind = datasets.Image if kind == "image" else datasets.ClassLabel
        names = []
        of_type = []
        for name, value in self.dataset.features.items():
            holds_text = "string" in str(getattr(value, "dtype", ""))  # such as paths
            if kind == "label" or not holds_text:
                names.append(name)
            if isinstance(value, type_of_kind):
                of_type.append(name)
        column: str | None = self._columns.find(kind, names, self.path, of_type)
        if column is None:
            refusal = NoLabels if kind == "label" else Refused
            raise refusal(f"{self.path}: {column_hint(kind, names)}")
        warn_once(f"{self.path}: {kind}s from the column {column!r}")
        return column

    def _group_values(self, name: str) -> list[Any]:
        self._columns.find("group", list(self.dataset.features), self.path)
        return self._values_of(name)

    def _find_classes(self) -> Classes:
        """Return the classes in the label column.

        Raises:
            NoLabels: there is no label column, or several without a recognized name.
        """
        import datasets

        column = self._find_column("label")
        kind = self.dataset.features[column]
        values = self._values_of(column)
        if not isinstance(kind, datasets.ClassLabel):
            return name_classes(values, context=self.path, missing=MISSING_VALUES)
        names = list(map(str, kind.names))
        name_of_number = dict(enumerate(names))  # −1 is a missing label
        labels = [name_of_number.get(value, value) for value in values]
        return name_classes(labels, natural_order(names), self.path)


class HuggingFaceFiles(HuggingFaceSource):
    """Images in a Hugging Face data set on disk: Arrow, as ``save_to_disk`` writes, or Parquet.

    Args:
        path: a folder with ``state.json``, a Parquet file, or a pattern for Parquet files, such as
            ``data/train-*.parquet``.
        columns: names of the image, label and group columns.

    Raises:
        ImportError: the package ``datasets`` is not installed.
        ValueError: the files do not exist, or there is no image column.
    """

    registered_name = DISK_HF

    def __init__(self, path: str | os.PathLike[str], columns: Columns = BY_NAME) -> None:
        name = os.fspath(path)
        self._files = data_files(name)
        super().__init__(open_data_files(self._files), columns, name)

    def _read_file(self, path: str) -> bytearray:
        """Refuse a row that names a file, since other people may have written the row."""
        raise UnreadableImageError(f"its row names the file {path}, and holds no image")

    def files(self) -> list[str]:
        """Return the Arrow or Parquet files."""
        return self._files


def _array_in(values: Any) -> Any:
    """Return the numbers in an Arrow list of lists as an array.

    Raises:
        UnreadableImageError: numbers are missing, or the lists differ in length.
    """
    import pyarrow
    from pyarrow import compute

    shape = [len(values)]
    while pyarrow.types.is_nested(values.type):
        lengths = compute.list_value_length(values).unique().to_pylist()
        if len(lengths) != 1 or None in lengths:
            raise UnreadableImageError(f"its rows have the lengths {lengths}")
        shape += lengths
        values = values.flatten()
    if values.null_count:
        raise UnreadableImageError("pixels are missing")
    return values.to_numpy(zero_copy_only=False).reshape(shape)


def is_hugging_face(dataset: object) -> bool:
    """Return whether this is a data set from the package ``datasets``."""
    package = sys.modules.get("datasets")  # if it is not imported, it created no data set
    return package is not None and isinstance(dataset, package.Dataset)


def data_files(path: str) -> list[str]:
    """Return a data set's files: Arrow files from ``save_to_disk``, or Parquet files.

    Raises:
        Refused: the path is a folder with several splits, or Arrow files are missing.
        FileNotFoundError: the files do not exist.
    """
    if os.path.isfile(os.path.join(path, STATE)):
        return _arrow_files(path)
    if os.path.isdir(path):
        raise Refused(
            f"{path} has no {STATE}. Pass the folder of one split, such as {path}/train, or "
            f"Parquet files as a quoted pattern, such as '{path}/train-*.parquet'."
        )
    files = [path] if os.path.exists(path) else sorted(glob.glob(path))
    if not files:
        raise MissingFile(f"{path}: no such file.")
    return files


def _arrow_files(folder: str) -> list[str]:
    """Return the Arrow files from ``save_to_disk`` in row order.

    They are found by their names, ``data-00000-of-00002.arrow``, because ``state.json`` may name
    files elsewhere.
    """
    names = sorted(glob.glob("data-*.arrow", root_dir=folder))
    if not names or not names[-1].endswith(f"-of-{len(names):05}.arrow"):
        raise Refused(
            f"{folder} has {len(names)} files data-…-of-….arrow, not as many as their names say. "
            f"Copy the data set again, or save it in a new folder."
        )
    return [os.path.join(folder, name) for name in names]


def open_data_files(files: list[str]) -> Any:
    """Open a split's files without a request to the hub.

    Raises:
        ImportError: the package ``datasets`` is not installed.
        Refused: a file cannot be read, or the package would open another one in its place.
    """
    import datasets

    parts = []
    for file in files:
        is_parquet = file.endswith(".parquet")
        if is_parquet and ("$" in file or "::" in file):
            raise Refused(
                f"{file}: rename the file or folder, because the package datasets treats $ and :: "
                f"in Parquet file names specially."
            )
        try:
            if is_parquet:  # the package treats its name as a pattern
                parts.append(datasets.Dataset.from_parquet(glob.escape(file)))
            else:
                parts.append(datasets.Dataset.from_file(file))
        except Exception as error:  # from pyarrow, or as the package wraps it
            raise Refused(
                f"{file} cannot be read ({error.__cause__ or error}). If it is incomplete, "
                f"download or save it again."
            ) from error
    return datasets.concatenate_datasets(parts)
