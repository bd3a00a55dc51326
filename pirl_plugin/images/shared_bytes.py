"""Bytes that loader workers share with the process that made them, instead of receiving a copy."""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from collections.abc import Callable
from multiprocessing import context, reduction
from typing import Any

import numpy as np
from numpy.typing import NDArray


class SharedBytes:
    """A block of bytes, zero at first, in anonymous memory that child processes map too.

    Forked workers inherit the mapping; those of ``spawn`` and ``forkserver`` are sent the file
    descriptor, so that all see one block. A copy made by other means (``pickle``, ``copy``, a job
    on another machine) is a block of its own. It needs no place in ``/dev/shm``.

    Args:
        size: bytes, at least 0.

    Attributes:
        array: uint8 (size,), the block; what is written to it is seen by all.
        mapped: the same block, at least one byte, for reads of a few bytes: a view of an array
            costs a microsecond.

    Example:
        >>> flags = SharedBytes(4)
        >>> flags.array[2] = 7
        >>> flags.array.tolist()
        [0, 0, 7, 0]
    """

    array: NDArray[np.uint8]
    mapped: mmap.mmap

    def __init__(self, size: int) -> None:
        descriptor = _anonymous_file()
        os.ftruncate(descriptor, max(size, 1))
        self._map(descriptor, size)

    def _map(self, descriptor: int, size: int) -> None:
        self._descriptor = descriptor
        weakref.finalize(self, os.close, descriptor)
        self.mapped = mmap.mmap(descriptor, max(size, 1))
        self.array = np.frombuffer(self.mapped, np.uint8, size)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Send the descriptor to a process that is being started, and the content elsewhere."""
        if context.get_spawning_popen() is not None:
            descriptor = reduction.DupFd(self._descriptor)
            return _attached, (descriptor, self.array.size)
        return _copied, (self.array.tobytes(),)


class SharedInteger:
    """A number that loader workers see change; 0 at first.

    Example:
        >>> epoch = SharedInteger()
        >>> epoch.value += 3
        >>> epoch.value
        3
    """

    def __init__(self) -> None:
        self._block = SharedBytes(8)

    @property
    def value(self) -> int:
        """The number, int64."""
        return int(self._block.array.view(np.int64)[0])

    @value.setter
    def value(self, value: int) -> None:
        self._block.array.view(np.int64)[0] = value


def _anonymous_file() -> int:
    try:
        return os.memfd_create("pirl_plugin")
    except (AttributeError, OSError):  # not on Linux
        with tempfile.TemporaryFile() as file:
            return os.dup(file.fileno())


def _attached(descriptor: Any, size: int) -> SharedBytes:
    block = SharedBytes.__new__(SharedBytes)
    block._map(descriptor.detach(), size)
    return block


def _copied(content: bytes) -> SharedBytes:
    block = SharedBytes(len(content))
    block.array[:] = np.frombuffer(content, np.uint8)
    return block
