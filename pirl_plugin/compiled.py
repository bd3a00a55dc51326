"""Compilation of numba kernels, kept on disk where that is possible."""

from __future__ import annotations

import hashlib
import logging
from contextlib import suppress
from numbers import Number
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numba

if TYPE_CHECKING:
    from collections.abc import Callable

    Parameters = ParamSpec("Parameters")
    Result = TypeVar("Result")

_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}


def compiled(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Compile without the interpreter's lock, once per installation.

    Numba compiles again when the function's file changes. Constants that the file imports are part
    of the machine code too: their digest becomes part of the name that numba gives its cache file.
    A kernel may call kernels of its own file only.

    A cache that cannot be read (damaged, or another user's) or written (a read-only container, a
    full disk) costs a compilation in each process, which one warning says. ``NUMBA_CACHE_DIR``
    names another folder.
    """
    constants = {k: v for k, v in function.__globals__.items() if isinstance(v, Number | tuple)}
    digest = hashlib.sha256(repr(sorted(constants.items())).encode()).hexdigest()[:8]
    function.__qualname__ += f"_{digest}"
    try:
        kernel = numba.njit(cache=True, **_OPTIONS)(function)
    except RuntimeError as error:  # no folder for it
        _warn(function.__name__, error)
        return numba.njit(**_OPTIONS)(function)
    cache = kernel._cache  # numba offers no other way
    load, save = cache.load_overload, cache.save_overload

    def load_overload(*arguments: Any) -> Any:
        try:
            return load(*arguments)
        except Exception as error:  # unpickling a damaged file raises many types
            _warn(function.__name__, error)
            with suppress(Exception):
                cache.flush()
            return None

    def save_overload(*arguments: Any) -> None:
        try:
            save(*arguments)
        except Exception as error:
            _warn(function.__name__, error)

    cache.load_overload, cache.save_overload = load_overload, save_overload
    return kernel


def _warn(name: str, error: Exception, _warned: list[str] = []) -> None:  # noqa: B006
    if not _warned:
        logging.root.warning(
            f"numba's cache of {name} cannot be used ({type(error).__name__}: {error}), so it is "
            f"compiled again; set NUMBA_CACHE_DIR to a folder of your own"
        )
    _warned.append(name)
