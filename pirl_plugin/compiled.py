"""Compile numba kernels, and cache them on disk if possible."""

from __future__ import annotations

import functools
import hashlib
import logging
from collections.abc import Callable
from numbers import Number
from typing import Any, ParamSpec, TypeVar

import numba

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def compiled(
    function: Callable[Parameters, Result], **options: Any
) -> Callable[Parameters, Result]:
    """Compile a kernel that runs without the interpreter's lock, once per installation.

    Numba compiles again when the function's file changes. Constants that the file imports are part
    of the machine code too: so the name of numba's cache file contains their digest. A kernel may
    only call kernels of its own file. If the cache cannot be used (no folder can be written, a file
    is damaged or belongs to another user), this process compiles the kernel and warns once.
    ``NUMBA_CACHE_DIR`` names another folder.
    """
    constants = {k: v for k, v in function.__globals__.items() if isinstance(v, Number | tuple)}
    digest = hashlib.sha256(repr(sorted(constants.items())).encode()).hexdigest()[:8]
    function.__qualname__ += f"_{digest}"
    options = {"nogil": True, "error_model": "numpy", **options}
    kernel: Callable[Parameters, Result] | None = None

    @functools.wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        nonlocal kernel
        if kernel is not None:
            return kernel(*args, **kwargs)
        try:
            cached = numba.njit(cache=True, **options)(function)
            result: Result = cached(*args, **kwargs)
            kernel = cached
        except Exception as error:  # a damaged pickle can raise any
            kernel = numba.njit(**options)(function)
            result = kernel(*args, **kwargs)
            logging.root.warning(
                f"{function.__name__} is compiled in this process: its cache cannot be used "
                f"({error!r}); remove it, or set NUMBA_CACHE_DIR"
            )
        return result

    return call
