"""Timing that a noisy machine does not spoil: in turn, in one process, several times."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def interleave(
    functions: Mapping[str, Callable[[], Any]],
    rounds: int,
    warm_up: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Call every function once a round, in an order that shifts from round to round.

    What slows the machine down for a while so slows all of them, and their ratio stays.

    Args:
        functions: what to time, by name; each returns only when its work is done.
        rounds: calls of each, at least 1.
        warm_up: untimed calls of each beforehand.
        clock: seconds; ``time.process_time`` for work of one thread, which other programs then
            slow down by what they take of caches and memory, not by what they take of the core.

    Returns:
        Seconds of each call, by name, in the order of the rounds.

    Raises:
        ValueError: fewer than one round.

    Example:
        >>> sorted(interleave({"a": list, "b": dict}, rounds=3))
        ['a', 'b']
    """
    if rounds < 1:
        raise ValueError(f"rounds is {rounds}; expected at least 1")
    names = list(functions)
    for name in names * warm_up:
        functions[name]()
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            start = clock()
            functions[name]()
            seconds[name].append(clock() - start)
    return seconds


def ratio(numerator: Sequence[float], denominator: Sequence[float]) -> float:
    """Median of the ratios of what was timed in the same rounds.

    Example:
        >>> ratio([2.0, 9.0, 4.0], [1.0, 3.0, 2.0])
        2.0
    """
    return statistics.median(n / d for n, d in zip(numerator, denominator, strict=True))
