"""What is measured for a claim: a difference of one seed, positive where the claim holds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping

from pirl_plugin.experiments.claims.claims_file import Metric, Spread, Statistic
from pirl_plugin.experiments.claims.plan import JIGSAW_PERMUTATIONS
from pirl_plugin.experiments.claims.rows import Rows, at_time

# (rows, seed, metric) → difference of that seed; None where a run is missing.
Measure = Callable[[Rows, int, Metric], float | None]


def over(better: str, worse: str) -> Measure:
    """Equal images seen: the end of one run of the main comparison against another's."""

    def measure(rows: Rows, seed: int, metric: Metric) -> float | None:
        one, other = rows.main(better, seed), rows.main(worse, seed)
        return float(one[metric] - other[metric]) if one and other else None

    return measure


def at_equal_time(better: str, worse: str) -> Measure:
    """What each has reached when the shorter of the two ends, in runs of the main comparison."""

    def measure(rows: Rows, seed: int, metric: Metric) -> float | None:
        untrained, one, other = (rows.main(method, seed) for method in ("random", better, worse))
        if not untrained or not one or not other:
            return None
        ends = [row["seconds"] for row in (one, other) if row["seconds"] is not None]
        if len(ends) < 2:  # of one of them they are unknown
            return None
        start = float(untrained[metric])
        ours, theirs = (at_time(row, min(ends), metric, start) for row in (one, other))
        return ours - theirs

    return measure


def layers(method: str, difference: Callable[[Mapping[str, float]], float]) -> Measure:
    """A difference between the layers of one run of the main comparison."""

    def measure(rows: Rows, seed: int, metric: Metric) -> float | None:
        row = rows.main(method, seed)
        return difference(row["linear_by_layer"]) if row else None

    return measure


def swept(
    name: str, needed: tuple[float, ...], difference: Callable[[Mapping[float, float]], float]
) -> Measure:
    """A difference over a sweep of PIRL (jigsaw), once the values it needs are there."""

    def measure(rows: Rows, seed: int, metric: Metric) -> float | None:
        found = rows.sweep(name, "pirl_jigsaw", seed)
        if not found or not set(needed) <= set(found):
            return None
        return difference({value: float(row[metric]) for value, row in found.items()})

    return measure


def over_value(name: str, better: float, worse: float, needed: tuple[float, ...] = ()) -> Measure:
    """One value of a sweep of PIRL (jigsaw) against another, once the values needed are there."""
    return swept(name, (better, worse, *needed), lambda top1: top1[better] - top1[worse])


def over_jigsaw(permutations: float) -> Measure:
    """PIRL (jigsaw) against its classifier with as many, once both have all that both take."""

    def measure(rows: Rows, seed: int, metric: Metric) -> float | None:
        pirl, jigsaw = (rows.sweep("permutations", m, seed) for m in ("pirl_jigsaw", "jigsaw"))
        if not set(JIGSAW_PERMUTATIONS) <= set(pirl) & set(jigsaw):
            return None
        return float(pirl[permutations][metric] - jigsaw[permutations][metric])

    return measure


def per_doubling(rows: Rows, seed: int, metric: Metric) -> float | None:
    """Least-squares slope of the measurement over log2 N, once all values of N are there."""
    found = rows.sweep("negatives", "pirl_jigsaw", seed)
    if len(found) < max(3, rows.num_swept("negatives", "pirl_jigsaw")):
        return None
    values = [math.log2(value) for value in found]
    return statistics.linear_regression(values, [float(r[metric]) for r in found.values()]).slope


def invariance(statistic: Statistic) -> Measure:
    """``mean`` or ``std`` of the jigsaw classifier's distances, minus PIRL's."""

    def measure(rows: Rows, seed: int, metric: Metric) -> float | None:
        jigsaw, pirl = (rows.invariance(method, seed) for method in ("jigsaw", "pirl_jigsaw"))
        return float(jigsaw[statistic] - pirl[statistic]) if jigsaw and pirl else None

    return measure


def relative_invariance(classifier: str, pirl: str, own_statistics: bool = False) -> Measure:
    """Distances of the same image as a share of those of different images.

    Args:
        classifier: method whose share is the first.
        pirl: method whose share is taken from it.
        own_statistics: whether with BatchNorm's statistics of each kind of input.
    """

    def measure(rows: Rows, seed: int, metric: Metric) -> float | None:
        shares = []
        for method in (classifier, pirl):
            measured = rows.invariance(method, seed)
            found: Spread | None = measured
            if measured and own_statistics:
                found = measured.get("own_statistics")
            if found is None:
                return None
            shares.append(float(found["mean"] / found["different_mean"]))
        return shares[0] - shares[1]

    return measure
