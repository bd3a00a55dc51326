"""Millions of paths in little memory, shared with the loader's workers."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Sequence
from typing import Any
from zipfile import BadZipFile

import numpy as np

from pirl_plugin.images.shared_bytes import SharedBytes

_ENDS = struct.Struct("=qq")  # where a path starts and ends in the blob


class PathTable(Sequence[str]):
    """An immutable list of paths: their offsets, and one blob of bytes.

    A million paths of 40 characters take 48 MB, against some 100 MB as Python strings, and are
    shared with workers, not sent to them.

    Args:
        paths: the paths, as strings (also undecodable ones, as ``os.fsdecode`` gives them).

    Example:
        >>> table = PathTable(["a/1.jpg", "b/2.jpg"])
        >>> len(table), table[1]
        (2, 'b/2.jpg')
    """

    def __init__(self, paths: Iterable[str]) -> None:
        blob, ends = bytearray(), [0]
        for path in paths:
            blob += os.fsencode(path)
            ends.append(len(blob))
        self._length = len(ends) - 1
        self._block = SharedBytes(8 * len(ends) + len(blob))
        self._block.array[: 8 * len(ends)] = np.array(ends, dtype=np.int64).view(np.uint8)
        self._block.array[8 * len(ends) :] = np.frombuffer(blob, np.uint8)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> Any:
        if not -self._length <= index < self._length:
            raise IndexError(f"path {index} of {self._length}")
        index %= self._length
        offset = 8 * (self._length + 1)
        start, end = _ENDS.unpack_from(self._block.mapped, 8 * index)
        return os.fsdecode(self._block.mapped[offset + start : offset + end])


class MappedPaths(Sequence[str]):
    """The paths of a ``.npy`` array of strings, mapped from disk in each process that reads it.

    Args:
        file: of the array, ``(N,)`` of str or bytes.
        mmap: map the file; else it is read into memory.

    Raises:
        ValueError: it cannot be read, or is not such an array.
    """

    def __init__(self, file: str, mmap: bool = True) -> None:
        self._file, self._mmap = file, mmap
        self._array = self._load()
        if self._array.ndim != 1 or self._array.dtype.kind not in "US":
            raise ValueError(
                f"holds an array of shape {self._array.shape} and type {self._array.dtype}"
            )

    def _load(self) -> np.ndarray[Any, Any]:
        try:
            array: np.ndarray[Any, Any] = np.load(self._file, mmap_mode="r" if self._mmap else None)
            if not isinstance(array, np.ndarray):
                raise ValueError("it is an archive of arrays")
        except (ValueError, OSError, EOFError, MemoryError, BadZipFile) as error:
            raise ValueError(
                f"cannot be read ({error}); save an array of Python objects again as "
                f"np.array(paths, dtype=str)"
            ) from error
        return array

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, index: Any) -> Any:
        return os.fsdecode(self._array[index])

    def __getstate__(self) -> dict[str, Any]:
        """The array is opened again where it is needed, not sent."""
        return {**self.__dict__, "_array": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Open the array again."""
        self.__dict__.update(state)
        self._array = self._load()
