"""Paired differences over seeds, and what they allow to say."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

LEVEL = 0.95
MIN_SEEDS = 3


@dataclass(frozen=True)
class Interval:
    """The mean of paired differences, and Student's t-interval around it.

    Attributes:
        mean: of the differences; NaN without any.
        standard_error: of the mean; NaN below two seeds.
        low: lower end of the interval; NaN below two seeds.
        high: its upper end.
        seeds: number of differences.
    """

    mean: float
    standard_error: float
    low: float
    high: float
    seeds: int

    @property
    def verdict(self) -> str:
        """``held`` or ``not held`` where the interval lies above or below 0, else ``undecided``.

        Fewer than three seeds decide nothing.
        """
        if self.seeds < MIN_SEEDS:
            return "undecided"
        return "held" if self.low > 0 else "not held" if self.high < 0 else "undecided"


def t_interval(differences: Sequence[float], level: float = LEVEL) -> Interval:
    """Student's t-interval of the mean of paired differences.

    Example:
        >>> interval = t_interval([1.0, 2.0, 3.0])  # 2 ± 4.303 · 1 / √3
        >>> round(interval.low, 3), round(interval.high, 3), interval.verdict
        (-0.484, 4.484, 'undecided')
    """
    from scipy.stats import t

    count = len(differences)
    mean = statistics.fmean(differences) if differences else math.nan
    if count < 2:
        return Interval(mean, math.nan, math.nan, math.nan, count)
    error = statistics.stdev(differences) / math.sqrt(count)
    half = float(t.ppf((1 + level) / 2, count - 1)) * error
    return Interval(mean, error, mean - half, mean + half, count)


def verdict_of_all(several: Sequence[Sequence[float]], level: float = LEVEL) -> str:
    """The verdict on a statement that several mean differences are above 0, each of them.

    ``held`` where every interval lies above 0, which needs no correction for their number k: if
    one mean is not above 0, its own interval says otherwise as often as the level allows.
    ``not held`` where one lies below 0 even at the level ``1 - (1 - level) / k`` (Bonferroni), so
    that this is as rare for k equal rivals as for one. Else ``undecided``.

    Args:
        several: paired differences, one a seed, for each rival.
        level: of the intervals.
    """
    if all(t_interval(differences, level).verdict == "held" for differences in several):
        return "held"
    corrected = 1 - (1 - level) / len(several)
    below = (t_interval(differences, corrected).verdict == "not held" for differences in several)
    return "not held" if any(below) else "undecided"
