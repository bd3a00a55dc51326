"""What identifies images: their names, the sizes and times of their files, and their content.

Files of features, copies and indexes of tars compare it, so that images that were replaced under
their names are noticed. A resumed run compares only the paths, because a copy of the images on a
node's own disk may have other times.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any

import numpy as np

from pirl_plugin.images.source import ImageSource, printable, warn_once

_THREADS = 16  # they wait for the disk
_CHUNK = 1000  # images


def content_stamp(path: str | os.PathLike[str]) -> str:
    """Return size and time of change (ns) of a file; ``missing`` if there is none.

    It follows links.
    """
    try:
        state = os.stat(path)
    except OSError:
        return "missing"
    return f"{state.st_size} {state.st_mtime_ns}"


def digest_of(words: Iterable[str]) -> str:
    """Return the SHA-256 of a list of words, in order."""
    digest = hashlib.sha256()
    for word in words:
        digest.update(os.fsencode(word) + b"\0")
    return digest.hexdigest()


def names_digest(source: ImageSource) -> str:
    """Return the digest of the names of a source's images, relative to its folder, in order."""
    return digest_of(map(source.name_of, range(len(source))))


def content_digest(source: ImageSource) -> str:
    """Return the digest of sizes and times of a source's images, in order.

    For tars, Arrow and parquet, they are those of these files. A library's data set in memory has
    none: only its length is known, by its names.
    """
    return digest_of(map(content_stamp, source.files()))


def say_shared_images(train: ImageSource, test: ImageSource) -> None:
    """Count once, in the log, the test images that are training images too.

    Only files whose size occurs in both are read.
    """
    train_sizes = np.array(_of_each(range(len(train)), train.size_of), np.int64)
    test_sizes = np.array(_of_each(range(len(test)), test.size_of), np.int64)
    common = np.intersect1d(train_sizes[train_sizes >= 0], test_sizes[test_sizes >= 0])
    train_rows = np.flatnonzero(np.isin(train_sizes, common))
    test_rows = np.flatnonzero(np.isin(test_sizes, common))
    of_train = set(_of_each(train_rows, lambda row: _digest_of_image(train, row))) - {None}
    of_test = _of_each(test_rows, lambda row: _digest_of_image(test, row))
    is_shared = list(map(of_train.__contains__, of_test))
    if any(is_shared):
        first = printable(test.path_of(int(test_rows[is_shared][0])))
        warn_once(
            f"{test.path}: {sum(is_shared)} of {len(test)} test images are training images, too, "
            f"so that accuracies are too high: {first} is the first"
        )


def _of_each(rows: Any, function: Callable[[int], Any]) -> list[Any]:
    """Return a function of each row, computed in several threads."""
    chunks = np.array_split(rows, 1 + len(rows) // _CHUNK)
    with ThreadPoolExecutor(_THREADS) as threads:
        parts = threads.map(lambda chunk: [function(int(row)) for row in chunk], chunks)
        return list(chain(*parts))


def _digest_of_image(source: ImageSource, row: int) -> bytes | None:
    """Return the SHA-1 of an image's file; None if it cannot be read."""
    try:
        return hashlib.sha1(source.read(row), usedforsecurity=False).digest()
    except (OSError, ValueError):
        return None
