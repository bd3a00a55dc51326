"""Some of many rows."""

from __future__ import annotations


def evenly_spaced(total: int, count: int) -> list[int]:
    """``count`` rows of ``total``, spread evenly over all of them; all where there are fewer.

    Example:
        >>> evenly_spaced(15, 8)
        [0, 1, 3, 5, 7, 9, 11, 13]
        >>> evenly_spaced(3, 8)
        [0, 1, 2]
    """
    count = min(count, total)
    return [i * total // count for i in range(count)]
