"""Write feature tables: CSV and Parquet, one row per readable image."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from pirl_plugin.system.files import atomic_write
from pirl_plugin.system.text import printable

_ROW_GROUP = 4096


def write_table(path: Path, columns: Mapping[str, NDArray[Any]]) -> None:
    """Write a table; without features, order it by class and probability, or by similarity.

    Args:
        path: ``.csv`` or ``.parquet``.
        columns: name → ``(N,)``; perhaps ``features``, ``(N, D)``, as the last one.
    """
    order = np.arange(len(columns["file"]))
    if "features" not in columns and "predicted" in columns:
        order = np.lexsort((-columns["probability"], columns["predicted"]))
    elif "features" not in columns and "similarity" in columns:
        order = np.argsort(-columns["similarity"], kind="stable")
    table: dict[str, NDArray[Any]] = {}
    for name, values in columns.items():
        if values.dtype.kind == "U":  # file and folder names need not be UTF-8
            values = np.array(list(map(printable, values.tolist())), object)
        table[name] = values[order]
    write = _write_csv if path.suffix == ".csv" else _write_parquet
    with atomic_write(path) as file:
        write(file, table)


def _write_csv(file: BinaryIO, table: dict[str, NDArray[Any]]) -> None:
    matrix = table.pop("features", np.empty((len(table["file"]), 0)))
    text = io.TextIOWrapper(file, "utf-8", newline="")
    writer = csv.writer(text)
    writer.writerow([*table, *(f"feature{number}" for number in range(matrix.shape[1]))])
    for *cells, values in zip(*table.values(), matrix, strict=True):
        writer.writerow([*cells, *values.tolist()])
    text.flush()
    text.detach()  # otherwise this would close the file


def _write_parquet(file: BinaryIO, table: dict[str, NDArray[Any]]) -> None:
    import pyarrow
    from pyarrow import parquet

    columns: dict[str, Any] = {}
    for name, values in table.items():
        if values.ndim == 2:
            flat = pyarrow.array(values.reshape(-1))
            values = pyarrow.FixedSizeListArray.from_arrays(flat, values.shape[1])
        columns[name] = values
    parquet.write_table(pyarrow.table(columns), file, row_group_size=_ROW_GROUP)
