"""What the finished runs say of each claim: the mean difference over seeds, and a verdict."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from pirl_plugin.experiments.claims.statements import CLAIMS
from pirl_plugin.experiments.claims.statistics import LEVEL, Interval, t_interval

if TYPE_CHECKING:
    from pirl_plugin.experiments.claims.claims_file import Metric, Verdict
    from pirl_plugin.experiments.claims.differences import Measure
    from pirl_plugin.experiments.claims.rows import Rows

# What is said beside the verdict, which is that of linear_top1.
_ALSO: dict[Literal["by_best_layer", "by_knn"], Metric] = {
    "by_best_layer": "linear_best_top1",
    "by_knn": "knn_top1",
}


def verdicts(rows: Rows) -> list[Verdict]:
    """The ``claims`` of ``claims.json``; also those that no run speaks about yet."""
    found: list[Verdict] = []
    for claim in CLAIMS:
        interval, differences = _interval(claim.measure, rows, "linear_top1")
        entry: Verdict = {
            "id": claim.id,
            "statement": claim.statement,
            "source": claim.source,
            "verdict": interval.verdict,
            "difference": _rounded(interval.mean),
            "standard_error": _rounded(interval.standard_error),
            "interval": [_rounded(interval.low), _rounded(interval.high)],
            "level": LEVEL,
            "unit": claim.unit,
            "seeds": sorted(differences),
        }
        for name, metric in _ALSO.items() if claim.by_accuracy else ():
            other, _ = _interval(claim.measure, rows, metric)
            entry[name] = {
                "verdict": other.verdict,
                "difference": _rounded(other.mean),
                "standard_error": _rounded(other.standard_error),
            }
        found.append(entry)
    return found


def _interval(measure: Measure, rows: Rows, metric: Metric) -> tuple[Interval, dict[int, float]]:
    by_seed = {seed: measure(rows, seed, metric) for seed in rows.seeds}
    differences = {seed: value for seed, value in by_seed.items() if value is not None}
    return t_interval(list(differences.values())), differences


def _rounded(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 4)
