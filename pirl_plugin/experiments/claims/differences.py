"""What is measured for a claim: a difference of one seed, positive where the claim holds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping

from pirl_plugin.experiments.claims.claims_file import Metric, Spread, Statistic
from pirl_plugin.experiments.claims.rows import Rows, at_time

# (rows, seed, metric) → difference of that seed; None where a run is missing.
Measure = Callable[[Rows, int, Metric], float | None]


def over(better: str, worse: str) -> Measure:
    """Equal images seen: the end of one run of the main comparison against another's."""

    def measure(rows: Rows, seed: int, metric: Metric) -> float | None:
        one, other = rows.main(better, seed), rows.main(worse, seed)
        return float(one[metric] - other[metric]) if one and other else None

    return measure


def at_equal_time(better: str, *worse: str) -> Measure:
    """What each has reached when the first of the two longest runs ends."""

    def measure(rows: Rows, seed: int, metric: Metric) -> float | None:
        untrained = rows.main("random", seed)
        mine, theirs = rows.curves([better], seed), rows.curves(worse, seed)
        if not untrained or not rows.main(better, seed) or not rows.main(worse[-1], seed):
            return None
        budget = min(max(row["seconds"] for row in side) for side in (mine, theirs))
        start = float(untrained[metric])
        reached = [
            max(at_time(row, budget, metric, start) for row in side) for side in (mine, theirs)
        ]
        return reached[0] - reached[1]

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


def over_jigsaw_everywhere(rows: Rows, seed: int, metric: Metric) -> float | None:
    """The smallest lead over the numbers of permutations that both have."""
    pirl, jigsaw = (rows.sweep("permutations", m, seed) for m in ("pirl_jigsaw", "jigsaw"))
    both = sorted(set(pirl) & set(jigsaw))
    if len(both) < 3:
        return None
    return min(float(pirl[value][metric] - jigsaw[value][metric]) for value in both)


def per_doubling(rows: Rows, seed: int, metric: Metric) -> float | None:
    """Least-squares slope of the measurement over log2 N, once all values of N are there."""
    found = rows.sweep("negatives", "pirl_jigsaw", seed)
    if len(found) < max(3, len(rows.negatives_swept)):
        return None
    values = [math.log2(value) for value in found]
    return statistics.linear_regression(values, [float(r[metric]) for r in found.values()]).slope


def invariance(statistic: Statistic) -> Measure:
    """``mean`` or ``std`` of the jigsaw classifier's distances, minus PIRL's."""

    def measure(rows: Rows, seed: int, metric: Metric) -> float | None:
        pair = [rows.main(method, seed) for method in ("jigsaw", "pirl_jigsaw")]
        values = [row["invariance"][statistic] for row in pair if row and "invariance" in row]
        return float(values[0] - values[1]) if len(values) == len(pair) else None

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
            row = rows.main(method, seed)
            measured = row.get("invariance") if row else None
            found: Spread | None = measured
            if measured and own_statistics:
                found = measured.get("own_statistics")
            if found is None:
                return None
            shares.append(float(found["mean"] / found["different_mean"]))
        return shares[0] - shares[1]

    return measure
