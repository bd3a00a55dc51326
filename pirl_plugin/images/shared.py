"""Memory that loader workers share with the process that made it, instead of receiving a copy."""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from collections.abc import Callable, Iterable, Sequence
from multiprocessing import context, reduction
from typing import Any

import numpy as np
from numpy.typing import NDArray


class SharedArray:
    """An array in anonymous memory that child processes map too; not in ``/dev/shm``.

    Forked workers inherit the mapping; those of ``spawn`` and ``forkserver`` are sent the file
    descriptor. A copy made by other means (``pickle``, ``copy``, a job on another machine) is an
    array of its own.

    Args:
        values: what it holds at first.

    Attributes:
        array: of the shape and type of ``values``; what is written to it is seen by all.

    Example:
        >>> epoch = SharedArray(np.zeros(1, np.int64))
        >>> epoch.array[0] += 3
        >>> epoch.array.tolist()
        [3]
    """

    def __init__(self, values: NDArray[Any]) -> None:
        descriptor = _anonymous_file()
        os.ftruncate(descriptor, max(values.nbytes, 1))
        self._map(descriptor, values.shape, values.dtype)
        self.array[...] = values

    def _map(self, descriptor: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._descriptor = descriptor
        weakref.finalize(self, os.close, descriptor)
        size = int(np.prod(shape)) * dtype.itemsize
        mapped = mmap.mmap(descriptor, max(size, 1))
        self.array: NDArray[Any] = np.frombuffer(mapped, np.uint8, size).view(dtype).reshape(shape)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Send the descriptor to a process that is being started, and the content elsewhere."""
        if context.get_spawning_popen() is None:
            return SharedArray, (self.array.copy(),)
        descriptor = reduction.DupFd(self._descriptor)
        return _attached, (descriptor, self.array.shape, self.array.dtype)


def _attached(descriptor: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> SharedArray:
    shared = SharedArray.__new__(SharedArray)
    shared._map(descriptor.detach(), shape, dtype)
    return shared


def _anonymous_file() -> int:
    try:
        return os.memfd_create("pirl_plugin")
    except (AttributeError, OSError):  # not on Linux
        with tempfile.TemporaryFile() as file:
            return os.dup(file.fileno())


class PathTable(Sequence[str]):
    """An immutable list of paths: their ends, and one blob of bytes, shared with workers.

    A million paths of 40 characters take 48 MB, against some 100 MB as Python strings.

    Args:
        paths: as strings (also undecodable ones, as ``os.fsdecode`` gives them).

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
        self._ends = SharedArray(np.array(ends, np.int64))
        self._blob = SharedArray(np.frombuffer(blob, np.uint8))

    def __len__(self) -> int:
        return len(self._ends.array) - 1

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(f"path {index} of {len(self)}")
        start, end = self._ends.array[index : index + 2].tolist()
        return os.fsdecode(self._blob.array[start:end].tobytes())
