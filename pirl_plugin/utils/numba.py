"""Compilation of the kernels, kept on disk where there is a place for it."""

from __future__ import annotations

import hashlib
import logging
from numbers import Number
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import numba

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Parameters = ParamSpec("Parameters")
    Result = TypeVar("Result")


def compiled(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Compile without the interpreter's lock, once per installation.

    Numba compiles again when the function's file changes, but the constants that this file imports
    are part of the machine code too: a digest of them is made part of the function's qualified
    name, by which numba names the file in its cache. Functions called are to be in the same file.

    Where neither the package's folder nor the user's cache can be written to (a read-only
    container, a full disk), the kernel is compiled in each process that needs it, which the log
    says. ``NUMBA_CACHE_DIR`` names a folder that can be written to.
    """
    function.__qualname__ += f"_{_digest_of_constants(function.__globals__)}"
    try:
        kernel = numba.njit(nogil=True, cache=True, error_model="numpy")(function)
    except RuntimeError as error:
        _not_cached(function.__name__, error)
        return numba.njit(nogil=True, error_model="numpy")(function)
    cache = kernel._cache  # type: ignore[attr-defined]  # numba offers no other way
    save = cache.save_overload

    def save_overload(signature: object, machine_code: object) -> None:
        try:
            save(signature, machine_code)
        except OSError as error:
            _not_cached(function.__name__, error)

    cache.save_overload = save_overload
    return kernel


def _not_cached(name: str, error: Exception) -> None:
    logging.root.warning(
        f"{name} is compiled again in each process: {error}; set NUMBA_CACHE_DIR to a folder that "
        f"can be written to"
    )


def _digest_of_constants(names: Mapping[str, object]) -> str:
    found = {name: value for name, value in names.items() if isinstance(value, Number | tuple)}
    return hashlib.sha256(repr(sorted(found.items())).encode()).hexdigest()[:8]
