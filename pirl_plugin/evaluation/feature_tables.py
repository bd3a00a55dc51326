"""Write feature tables: CSV, one row per readable image."""

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


def write_table(
    path: Path, columns: Mapping[str, NDArray[Any]], features: NDArray[np.float32] | None
) -> None:
    """Write a table; without features, order it by class and probability, or by similarity.

    Args:
        path: ``.csv``.
        columns: name → ``(N,)``.
        features: ``(N, D)``, for the last D columns.
    """
    count = len(columns["file"])
    order = np.arange(count)
    if features is not None:
        matrix = features
    else:
        matrix = np.empty((count, 0), np.float32)
        if "predicted" in columns:
            order = np.lexsort((-columns["probability"], columns["predicted"]))
        elif "similarity" in columns:
            order = np.argsort(-columns["similarity"], kind="stable")
    with atomic_write(path) as file:
        text = io.TextIOWrapper(file, "utf-8", newline="")
        writer = csv.writer(text)
        writer.writerow([*columns, *(f"feature{number}" for number in range(matrix.shape[1]))])
        for row in order:
            cells = [values[row] for values in columns.values()]
            # File and folder names need not be UTF-8.
            cells = [printable(cell) if isinstance(cell, str) else cell for cell in cells]
            writer.writerow([*cells, *matrix[row].tolist()])
        text.flush()
        text.detach()  # otherwise this would close the file
