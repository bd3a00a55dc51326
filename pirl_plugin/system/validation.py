"""Checks of arguments: the message names the argument, what it is, and what was expected."""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any

from pirl_plugin.system.failures import Refused


def check(name: str, value: object, fits: bool, expected: str) -> None:
    """Raise ``Refused`` if an argument does not fit.

    Example:
        >>> check("momentum", 1.5, False, "a number in [0, 1)")
        Traceback (most recent call last):
        pirl_plugin.system.failures.Refused: momentum = 1.5: expected a number in [0, 1)
    """
    if not fits:
        raise Refused(f"{name} = {value!r}: expected {expected}")


def check_name(name: str, value: object, names: Iterable[str]) -> None:
    """Raise ``Refused`` if an argument is not one of the names."""
    names = list(names)
    check(name, value, value in names, f"one of {', '.join(names)}")


def check_whole(name: str, value: Any, least: int) -> None:
    """Raise ``Refused`` if an argument is not an integer of at least ``least``."""
    fits = is_whole(value) and value >= least
    check(name, value, fits, f"a whole number of at least {least}")


def is_number(value: object) -> bool:
    """Return whether a value is a finite real number; True and False are not."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(float(value))


def is_whole(value: object) -> bool:
    """Return whether a value is an integer; True and False are not."""
    return isinstance(value, Integral) and not isinstance(value, bool)
