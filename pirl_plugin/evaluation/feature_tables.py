"""Write feature tables: CSV and Parquet, one row per readable image."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pirl_plugin.system.files import atomic_write
from pirl_plugin.system.text import printable

_ROW_GROUP = 4096


def write_table(
    path: Path,
    columns: Mapping[str, NDArray[Any]],
    features: Mapping[str, NDArray[np.float32]],
    order: NDArray[np.int64] | None = None,
) -> None:
    """Write a table.

    Args:
        path: ``.csv`` or ``.parquet``.
        columns: name → ``(N,)``, the first columns.
        features: name → ``(N, D)``, at most one for ``.csv``.
        order: int64 ``(N,)``, row order; None: as passed.
    """
    table: dict[str, NDArray[Any]] = {}
    for name, values in columns.items():
        if values.dtype.kind == "U":  # file and folder names need not be UTF-8
            values = np.array(list(map(printable, values.tolist())), object)
        table[name] = values
    if order is not None:
        table = {name: values[order] for name, values in table.items()}
        features = {name: values[order] for name, values in features.items()}
    write = _write_csv if path.suffix == ".csv" else _write_parquet
    write(path, table, features)


def _write_csv(
    path: Path, table: Mapping[str, NDArray[Any]], features: Mapping[str, NDArray[np.float32]]
) -> None:
    matrix = next(iter(features.values()), np.empty((len(table["file"]), 0), np.float32))
    with atomic_write(path) as file:
        text = io.TextIOWrapper(file, "utf-8", newline="")
        writer = csv.writer(text)
        writer.writerow([*table, *(f"feature{number}" for number in range(matrix.shape[1]))])
        for row, values in enumerate(matrix):
            writer.writerow([*(column[row] for column in table.values()), *values.tolist()])
        text.flush()
        text.detach()  # otherwise this would close the file


def _write_parquet(
    path: Path, table: Mapping[str, NDArray[Any]], features: Mapping[str, NDArray[np.float32]]
) -> None:
    import pyarrow
    from pyarrow import parquet

    columns: dict[str, Any] = dict(table)
    for name, matrix in features.items():
        values = pyarrow.array(matrix.reshape(-1))
        columns[name] = pyarrow.FixedSizeListArray.from_arrays(values, matrix.shape[1])
    with atomic_write(path) as file:
        parquet.write_table(pyarrow.table(columns), file, row_group_size=_ROW_GROUP)
