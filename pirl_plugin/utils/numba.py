"""Compilation of the kernels, kept on disk where there is a place for it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import numba

if TYPE_CHECKING:
    from collections.abc import Callable

    Parameters = ParamSpec("Parameters")
    Result = TypeVar("Result")


def compiled(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Compile without the interpreter's lock, once per installation.

    Where neither the package's folder nor the user's cache can be written to (a read-only
    container), numba refuses to cache: the kernel is then compiled in each process that needs it,
    which the log says. ``NUMBA_CACHE_DIR`` names a folder that can be written to.
    """
    try:
        return numba.njit(nogil=True, cache=True, error_model="numpy")(function)
    except RuntimeError as error:
        logging.warning(
            f"{function.__name__} is compiled again in each process: {error}; set NUMBA_CACHE_DIR "
            f"to a folder that can be written to"
        )
        return numba.njit(nogil=True, error_model="numpy")(function)
