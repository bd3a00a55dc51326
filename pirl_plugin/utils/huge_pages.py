"""Huge pages for large tensors: rows read at random then need fewer look-ups of addresses."""

from __future__ import annotations

import ctypes
import mmap
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

_PAGE = 2**21
_LEAST = 32 * _PAGE  # bytes; smaller tensors may share their memory with others


def advise_huge_pages(tensor: Tensor) -> Tensor:
    """Ask Linux to back a new tensor on the CPU with huge pages, where it grants them on demand.

    To be called before the tensor is written to. It is advice: where it is not followed, nothing
    but speed differs.

    Returns:
        ``tensor``.
    """
    if sys.platform != "linux" or tensor.device.type != "cpu" or tensor.nbytes < _LEAST:
        return tensor
    start = -(-tensor.data_ptr() // _PAGE) * _PAGE
    length = (tensor.data_ptr() + tensor.nbytes - start) // _PAGE * _PAGE
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    madvise(start, length, mmap.MADV_HUGEPAGE)
    return tensor
