"""Compile numba kernels once per installation; a damaged cache ends no run."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

import numba
from numba.core.errors import NumbaError


class CachedKernel:
    """A function that numba compiles at its first call, without the interpreter's lock.

    Numba keeps the machine code beside the function's file, and compiles again when this file
    changes. So a kernel uses only constants and kernels of its own file. ``NUMBA_CACHE_DIR`` names
    another folder. If the cache cannot be used (no folder can be written, a file is damaged or
    belongs to another user), this process compiles the kernel for itself and warns once.

    Args:
        function: the kernel.
        **options: options of ``numba.njit``.
    """

    def __init__(self, function: Callable[..., Any], **options: Any) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._options = {"nogil": True, "error_model": "numpy", **options}
        self._compiled: Callable[..., Any] | None = None
        self._uses_cache = True

    def __call__(self, *arguments: Any) -> Any:
        """Run the kernel."""
        try:
            if self._compiled is None:
                self._compiled = numba.njit(self._function, cache=True, **self._options)
            return self._compiled(*arguments)
        except NumbaError:  # the kernel itself is wrong
            raise
        except Exception as error:  # a damaged file of pickled code can raise any
            if not self._uses_cache:
                raise
            self._uses_cache = False
            self._compiled = numba.njit(self._function, **self._options)
            logging.root.warning(
                f"{self._function.__name__} is compiled in this process: its cache cannot be used "
                f"({error!r}); remove it, or set NUMBA_CACHE_DIR"
            )
            return self._compiled(*arguments)
