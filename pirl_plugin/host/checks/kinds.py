"""Kinds of values that a key may have: what a refusal calls them, and whether a value is one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Kind:
    """A kind of value.

    Attributes:
        expected: what a refusal says was expected.
        holds: whether a value is of this kind.
    """

    expected: str
    holds: Callable[[object], bool]


def integer(low: int, high: int | None = None, other: int | None = None) -> Kind:
    """A whole number in [low, high], or ``other`` (such as −1 for "all")."""
    expected = f"a whole number of at least {low}"
    if high is not None:
        expected = f"a whole number from {low} to {high}"
    if other is not None:
        expected += f", or {other}"

    def holds(value: object) -> bool:
        if not isinstance(value, int) or isinstance(value, bool):
            return False
        return value == other or (low <= value and (high is None or value <= high))

    return Kind(expected, holds)


def number(low: float = 0.0, high: float = math.inf, *, above: bool = False) -> Kind:
    """A finite number in [low, high]; with ``above``, in (low, high]."""
    lower = f"above {low:g}" if above else f"of at least {low:g}"
    expected = f"a finite number {lower}" + (f", at most {high:g}" if high < math.inf else "")

    def holds(value: object) -> bool:
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            return False
        return math.isfinite(value) and (value > low if above else value >= low) and value <= high

    return Kind(expected, holds)


def flag() -> Kind:
    """True or False."""
    return Kind("true or false", lambda value: isinstance(value, bool))


def text(expected: str = "text", *, empty: bool = False) -> Kind:
    """A string, not empty unless ``empty``."""
    return Kind(expected, lambda value: isinstance(value, str) and (empty or bool(value.strip())))


def choice(*values: object) -> Kind:
    """One of a few values, compared with their types: ``1`` is not ``True``."""
    names = ", ".join("null" if value is None else str(value) for value in values)
    known = [(type(value), value) for value in values]
    return Kind(f"one of {names}", lambda value: (type(value), value) in known)


def list_of(kind: Kind, expected: str, *, shortest: int = 0, longest: int | None = None) -> Kind:
    """A list of values of one kind."""

    def holds(value: object) -> bool:
        if not isinstance(value, list) or len(value) < shortest:
            return False
        return (longest is None or len(value) <= longest) and all(map(kind.holds, value))

    return Kind(expected, holds)


def optional(kind: Kind) -> Kind:
    """A value of a kind, or null."""
    return Kind(f"{kind.expected}, or null", lambda value: value is None or kind.holds(value))


def mapping() -> Kind:
    """A section of keys."""
    return Kind("a section of keys and values", lambda value: isinstance(value, dict))
