"""Compile numba kernels, and cache them on disk if possible."""

from __future__ import annotations

import hashlib
import logging
from numbers import Number
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numba

if TYPE_CHECKING:
    from collections.abc import Callable

    Parameters = ParamSpec("Parameters")
    Result = TypeVar("Result")


def compiled(
    function: Callable[Parameters, Result], **options: Any
) -> Callable[Parameters, Result]:
    """Compile a kernel that runs without the interpreter's lock, once per installation.

    Numba compiles again when the function's file changes. Constants that the file imports are part
    of the machine code too: so the name of numba's cache file contains their digest. A kernel may
    only call kernels of its own file. If numba finds no folder for the cache, each process
    compiles; ``NUMBA_CACHE_DIR`` names a folder.
    """
    constants = {k: v for k, v in function.__globals__.items() if isinstance(v, Number | tuple)}
    digest = hashlib.sha256(repr(sorted(constants.items())).encode()).hexdigest()[:8]
    function.__qualname__ += f"_{digest}"
    options = {"nogil": True, "error_model": "numpy", **options}
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError as error:
        logging.root.warning(f"{function.__name__} is compiled in each process: {error}")
        return numba.njit(**options)(function)
