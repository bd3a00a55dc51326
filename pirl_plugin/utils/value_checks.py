"""Checks of values, with one grammar for what they refuse: ``KEY = VALUE: expected …; do …``."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral, Real
from typing import NoReturn

Check = Callable[[str, object], None]


def refuse(key: str, value: object, expected: str, remedy: str) -> NoReturn:
    """Raise what every check raises.

    Raises:
        ValueError: always.
    """
    shown = f"{value!r}" if isinstance(value, str) else f"{value}"
    raise ValueError(f"{key} = {shown}: expected {expected}; {remedy}")


def choice(names: Iterable[str]) -> Check:
    """Make a check that a value is one of ``names``, which may grow after the check is made."""

    def check(key: str, value: object) -> None:
        if not isinstance(value, str) or value not in names:
            near = _nearest(str(value), names)
            remedy = f"write {near}" if near else "set it to one of these"
            refuse(key, value, f"one of {', '.join(names)}", remedy)

    return check


def number(
    low: float, high: float, expected: str, remedy: str, above: bool = False, below: bool = False
) -> Check:
    """Make a check that a value is a finite number in [low, high], or inside its open ends."""

    def check(key: str, value: object) -> None:
        if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
            refuse(key, value, expected, remedy)
        if not low <= float(value) <= high or (above and value == low) or (below and value == high):
            refuse(key, value, expected, remedy)

    return check


def whole_number(low: int, high: int, expected: str, remedy: str) -> Check:
    """Make a check that a value is an integer in [low, high]; 2.0 is none."""

    def check(key: str, value: object) -> None:
        if isinstance(value, bool) or not isinstance(value, Integral):
            refuse(key, value, expected, remedy)
        if not low <= int(value) <= high:
            refuse(key, value, expected, remedy)

    return check


def flag() -> Check:
    """Make a check that a value is a bool."""

    def check(key: str, value: object) -> None:
        if not isinstance(value, bool):
            refuse(key, value, "true or false", "set it to one of these")

    return check


def optional(check: Check) -> Check:
    """Make a check that lets None pass."""
    return lambda key, value: None if value is None else check(key, value)


def check_keys(section: str, values: Mapping[str, object], known: list[str]) -> None:
    """Refuse a key that the section does not have, and name the nearest.

    Raises:
        ValueError: there is such a key.
    """
    for key in values:
        if key not in known:
            expected = f"a key of {section} ({', '.join(known)})"
            refuse(f"{section}.{key}", values[key], expected, write_or_remove(str(key), known))


def write_or_remove(name: str, known: Iterable[str]) -> str:
    """The remedy for a name that is not among the ``known`` ones.

    Example:
        >>> write_or_remove("patchsize", ["image_size", "patch_size"])
        'write patch_size'
        >>> write_or_remove("size", ["image_size", "patch_size", "grid"])
        'write image_size or patch_size'
    """
    near = _nearest(name, known)
    return f"write {near}" if near else "remove it"


def _nearest(name: str, known: Iterable[str]) -> str:
    """The known name that is nearest, or all that are equally near; empty if none is near."""
    likeness = {k: difflib.SequenceMatcher(None, k, name).ratio() for k in known}
    best = max(likeness.values(), default=0.0)
    return " or ".join(k for k, ratio in likeness.items() if ratio == best >= 0.5)
