"""Memory that a process shares with its loader workers, without copies."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Callable, Iterable, Sequence
from multiprocessing import context, reduction
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray


class SharedArray:
    """An array in a deleted temporary file, which child processes map too; not in ``/dev/shm``.

    Forked workers inherit the mapping. Workers of ``spawn`` and ``forkserver`` receive the file
    descriptor. Any other copy (``pickle``, ``copy``) is a separate array.

    Args:
        values: the initial values.

    Attributes:
        array: array with the shape and dtype of ``values``; all processes see all changes.

    Example:
        >>> epoch = SharedArray(np.zeros(1, np.int64))
        >>> epoch.array[0] += 3
        >>> epoch.array.tolist()
        [3]
    """

    def __init__(self, values: NDArray[Any]) -> None:
        file = tempfile.TemporaryFile()
        file.write(values.tobytes() or b"\0")  # an empty file cannot be mapped
        file.flush()
        self._map(file, values.shape, values.dtype)

    def _map(self, file: IO[bytes], shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._file = file
        weakref.finalize(self, file.close)  # Python warns of a file that nobody closes
        self.array: NDArray[Any] = np.asarray(np.memmap(file, dtype, "r+", shape=shape))

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        if context.get_spawning_popen() is None:
            return SharedArray, (self.array.copy(),)
        descriptor = reduction.DupFd(self._file.fileno())
        return _attached, (descriptor, self.array.shape, self.array.dtype)


def _attached(descriptor: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> SharedArray:
    shared = SharedArray.__new__(SharedArray)
    shared._map(os.fdopen(descriptor.detach(), "r+b"), shape, dtype)
    return shared


class PathTable(Sequence[str]):
    """An immutable list of paths in shared memory: a million paths of 40 characters take 48 MB.

    Args:
        paths: any paths from ``os.fsdecode``, also undecodable ones.

    Example:
        >>> table = PathTable(["a/1.jpg", "b/2.jpg"])
        >>> len(table), table[1]
        (2, 'b/2.jpg')
    """

    def __init__(self, paths: Iterable[str]) -> None:
        joined = bytearray()
        ends = [0]
        for path in paths:
            joined += os.fsencode(path)
            ends.append(len(joined))
        self._ends = SharedArray(np.array(ends, np.int64))
        self._joined = SharedArray(np.frombuffer(joined, np.uint8))

    def __len__(self) -> int:
        return len(self._ends.array) - 1

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(f"path {index} of {len(self)}")
        start, end = self._ends.array[index : index + 2].tolist()
        return os.fsdecode(self._joined.array[start:end].tobytes())
