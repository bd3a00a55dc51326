"""Compilation of numba kernels, kept on disk where that is possible."""

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
    """Compile without the interpreter's lock, once per installation.

    Numba compiles again when the function's file changes. Constants that the file imports are part
    of the machine code too: their digest becomes part of the name that numba gives its cache file.
    A kernel may call kernels of its own file only. Where numba finds no folder for the cache, each
    process compiles; ``NUMBA_CACHE_DIR`` names one.
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
