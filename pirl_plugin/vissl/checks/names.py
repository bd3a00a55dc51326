"""Names close to one that does not exist."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def close_names(name: str, known: Iterable[str], count: int = 3, cutoff: float = 0.0) -> list[str]:
    """The ``count`` known names nearest to ``name``, nearest first.

    Capitals do not count; of dotted or slashed names, the last part counts as much as the whole.

    Example:
        >>> close_names("temprature", ["num_negatives", "temperature", "scores"], count=1)
        ['temperature']
    """
    scores = sorted(((_likeness(name, other), other) for other in set(known)), reverse=True)
    return [other for score, other in scores[:count] if score >= cutoff]


def nearest(name: str, known: Iterable[str]) -> str:
    """``the nearest are A, B and C``, for the end of a refusal."""
    *others, last = close_names(name, known) or ["none"]
    return f"the nearest are {', '.join(others)} and {last}" if others else f"the nearest is {last}"


def _likeness(one: str, other: str) -> float:
    one, other = one.lower(), other.lower()
    last_one, last_other = (text.replace("/", ".").rpartition(".")[2] for text in (one, other))
    whole = difflib.SequenceMatcher(None, one, other).ratio()
    return (whole + difflib.SequenceMatcher(None, last_one, last_other).ratio()) / 2
