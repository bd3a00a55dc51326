"""Images that occur in the training and in the test images, found by their content."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from pirl_plugin.images.source import ImageSource, printable, warn_once

_COMPARED = 1 << 16  # bytes: of encoded images, no two begin with the same ones
_THREADS = 16  # they wait for the disk
_CHUNK = 1000  # images


def say_shared_images(train: ImageSource, test: ImageSource) -> None:
    """Count once, in the log, the test images that are training images too.

    Images are the same if their files have the same size and begin with the same 64 KiB. Only files
    whose size occurs in both are read.
    """
    train_sizes = np.array(_of_each(range(len(train)), train.size_of), np.int64)
    test_sizes = np.array(_of_each(range(len(test)), test.size_of), np.int64)
    common = np.intersect1d(train_sizes[train_sizes >= 0], test_sizes[test_sizes >= 0])
    train_rows = np.flatnonzero(np.isin(train_sizes, common)).tolist()
    test_rows = np.flatnonzero(np.isin(test_sizes, common)).tolist()
    of_train = set(_of_each(train_rows, lambda row: _content(train, row)))
    of_test = _of_each(test_rows, lambda row: _content(test, row))
    shared = [
        row
        for row, content in zip(test_rows, of_test, strict=True)
        if content is not None and content in of_train
    ]
    if shared:
        warn_once(
            f"{test.path}: {len(shared)} of {len(test)} test images are training images, too, so "
            f"that accuracies are too high: {printable(test.path_of(shared[0]))} is the first"
        )


def _of_each(rows: Sequence[int], function: Callable[[int], Any]) -> list[Any]:
    """Return a function of each row, computed in several threads."""
    chunks = [rows[start : start + _CHUNK] for start in range(0, len(rows), _CHUNK)]
    with ThreadPoolExecutor(_THREADS) as threads:
        parts = threads.map(lambda chunk: [function(row) for row in chunk], chunks)
        return [value for part in parts for value in part]


def _content(source: ImageSource, row: int) -> bytes | None:
    """Return what identifies the content of an image; None if it cannot be read."""
    try:
        beginning = source.read_beginning(row, _COMPARED)
    except (OSError, ValueError):
        return None
    size = source.size_of(row)
    return hashlib.sha1(beginning, usedforsecurity=False).digest() + size.to_bytes(8, "big")
