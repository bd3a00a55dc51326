"""Intervals over seeds and test photos, for accuracies and their differences.

Both vary: a different seed trains a different network, and other test photos give a different
accuracy. The 95 % interval for a mean over seeds adds the two in quadrature: Student's interval
over the seeds, and the normal one over the test photos, which all seeds share. If it is known which
photos are right, differences are paired photo by photo, as in the limit of a paired bootstrap;
otherwise the photos behind both accuracies count as independent, which gives a wider interval.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

LEVEL = 0.95
FEWEST_SEEDS = 3  # for an interval


@dataclass(frozen=True)
class Accuracy:
    """A method's top-1 on test photos.

    Attributes:
        top1: percent, by seed.
        photos: number of test photos.
        right: seed → which photos are right, (photos,); empty if not recorded.
        is_fixed: whether no seed changes it.
    """

    top1: pd.Series
    photos: int
    right: Mapping[int, NDArray[np.bool_]]
    is_fixed: bool = False

    def for_seeds(self, seeds: pd.Index) -> Accuracy:
        """Repeat a fixed accuracy for each seed; return any other as it is."""
        if not self.is_fixed:
            return self
        top1 = pd.Series(self.top1.iloc[0], seeds)
        right = {seed: right for right in [*self.right.values()][:1] for seed in seeds}
        return replace(self, top1=top1, right=right)


@dataclass(frozen=True)
class Interval:
    """A mean over seeds, in percent or points.

    Attributes:
        mean: mean over the seeds.
        half_width: half the width of the 95 % interval; None with too few seeds.
    """

    mean: float
    half_width: float | None

    @property
    def arrow(self) -> str:
        """``↑`` if the interval lies above 0, ``↓`` if it lies below."""
        if self.half_width is None or abs(self.mean) <= self.half_width:
            return ""
        return " ↑" if self.mean > 0 else " ↓"

    def text(self, sign: str = "") -> str:
        """Return ``mean ± half width`` without line breaks; ``sign`` is ``+`` for differences."""
        words = f"{self.mean:{sign}.1f}"
        if self.half_width is not None:
            words += f"\u00a0±\u00a0{self.half_width:.1f}"
        return words


def interval_of(accuracy: Accuracy) -> Interval:
    """Return an accuracy's mean and interval."""
    fraction = accuracy.top1.mean() / 100
    variance = fraction * (1 - fraction) / accuracy.photos
    if accuracy.right:
        variance = _variance(np.mean([*accuracy.right.values()], axis=0))
    return _interval(accuracy.top1, 100 * variance**0.5, accuracy.is_fixed)


def difference(first: Accuracy, second: Accuracy) -> Interval | None:
    """Return how far the first accuracy is ahead of the second, seed by seed.

    Only seeds that both have are used; None if there are none. A fixed accuracy has all seeds.
    """
    first, second = first.for_seeds(second.top1.index), second.for_seeds(first.top1.index)
    leads = (first.top1 - second.top1).dropna()
    if leads.empty:
        return None
    if first.right and second.right:
        by_photo = [first.right[seed].astype(float) - second.right[seed] for seed in leads.index]
        variance = _variance(np.mean(by_photo, axis=0))
    else:
        fractions = [one.top1[leads.index].mean() / 100 for one in (first, second)]
        sizes = [first.photos, second.photos]
        variance = sum(p * (1 - p) / n for p, n in zip(fractions, sizes, strict=True))
    return _interval(leads, 100 * variance**0.5, first.is_fixed and second.is_fixed)


def _variance(by_photo: NDArray[np.float64]) -> float:
    """Return the variance of a mean over photos."""
    return float(by_photo.var(ddof=1)) / len(by_photo)


def _interval(by_seed: pd.Series, photo_error: float, is_fixed: bool) -> Interval:
    """Return the interval for a mean, given its standard error over photos."""
    of_photos = stats.norm.ppf((1 + LEVEL) / 2) * photo_error
    if is_fixed:
        return Interval(by_seed.mean(), of_photos)
    if len(by_seed) < FEWEST_SEEDS:
        return Interval(by_seed.mean(), None)
    of_seeds = stats.t.ppf((1 + LEVEL) / 2, len(by_seed) - 1) * by_seed.sem()
    return Interval(by_seed.mean(), float(np.hypot(of_seeds, of_photos)))


def packed(right: NDArray[np.bool_]) -> str:
    """Encode which of M photos are right as hexadecimal digits, one bit per photo.

    Example:
        >>> packed(np.array([True, False, True, False, False, False, False, False, True]))
        'a080'
    """
    return np.packbits(right).tobytes().hex()


def unpacked(digits: str, photos: int) -> NDArray[np.bool_]:
    """Decode which photos are right, from :func:`packed`.

    Example:
        >>> unpacked("a080", 9).nonzero()[0]
        array([0, 2, 8])
    """
    return np.unpackbits(np.frombuffer(bytes.fromhex(digits), np.uint8))[:photos].astype(bool)
