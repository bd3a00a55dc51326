"""Compile numba kernels once per installation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Return a kernel that numba compiles on the first call and that releases the GIL.

    Numba stores the machine code beside the function's file or in the user's cache, and recompiles
    when this file changes. So a kernel uses only constants and kernels from its own file.
    ``NUMBA_CACHE_DIR`` selects another folder.

    Args:
        function: the kernel.
        **options: options for ``numba.njit``.
    """
    options = {"nogil": True, "error_model": "numpy", **options}
    try:
        return numba.njit(function, cache=True, **options)
    except RuntimeError:  # no folder is writable, so each process compiles for itself
        return numba.njit(function, **options)
