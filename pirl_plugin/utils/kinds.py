"""Kinds of values that a key may have: what a refusal calls them, and whether a value is one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING

from pirl_plugin.utils.value_checks import refuse

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

    def check(self, key: str, value: object, remedy: str) -> None:
        """Refuse a value that is of another kind.

        Raises:
            ValueError: it is.
        """
        if not self.holds(value):
            refuse(key, value, self.expected, remedy)


def integer(
    low: int, high: int | None = None, other: int | None = None, expected: str | None = None
) -> Kind:
    """A whole number in [low, high], or ``other`` (such as −1 for "all"); 2.0 is none."""
    named = f"a whole number of at least {low}"
    if high is not None:
        named = f"a whole number from {low} to {high}"
    if other is not None:
        named += f", or {other}"

    def holds(value: object) -> bool:
        if not isinstance(value, Integral) or isinstance(value, bool):
            return False
        return value == other or (low <= int(value) and (high is None or int(value) <= high))

    return Kind(expected or named, holds)


def number(
    low: float = 0.0,
    high: float = math.inf,
    *,
    above: bool = False,
    below: bool = False,
    expected: str | None = None,
) -> Kind:
    """A finite number in [low, high]; with ``above`` and ``below``, without that end."""
    named = f"a finite number {'above' if above else 'of at least'} {low:g}"
    if high < math.inf:
        named += f", {'below' if below else 'at most'} {high:g}"

    def holds(value: object) -> bool:
        if not isinstance(value, Real) or isinstance(value, bool):
            return False
        try:
            found = float(value)
        except OverflowError:  # a whole number of hundreds of digits
            return False
        if not math.isfinite(found):
            return False
        return (found > low if above else found >= low) and (
            found < high if below else found <= high
        )

    return Kind(expected or named, holds)


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


def optional(kind: Kind, null: str = "null") -> Kind:
    """A value of a kind, or null, which a refusal describes as ``null``."""
    return Kind(f"{kind.expected}, or {null}", lambda value: value is None or kind.holds(value))


def mapping() -> Kind:
    """A section of keys."""
    return Kind("a section of keys and values", lambda value: isinstance(value, dict))
