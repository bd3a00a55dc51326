"""What the finished runs say of each claim: the mean difference over seeds, and a verdict."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING, Literal, NamedTuple

from pirl_plugin.experiments.claims.statements import CLAIMS
from pirl_plugin.experiments.claims.statistics import (
    LEVEL,
    Interval,
    t_interval,
    verdict_of_all,
)

if TYPE_CHECKING:
    from pirl_plugin.experiments.claims.claim import Claim
    from pirl_plugin.experiments.claims.claims_file import Difference, Metric, Verdict
    from pirl_plugin.experiments.claims.rows import Rows

# What is said beside a verdict on linear_top1.
_ALSO: dict[Literal["by_best_layer", "by_knn"], Metric] = {
    "by_best_layer": "linear_best_top1",
    "by_knn": "knn_top1",
}


class _Measured(NamedTuple):
    """The verdict on a claim, and the interval of the rival with the smallest mean difference.

    Where there are several rivals, that one is chosen by the mean over the seeds. Its difference is
    therefore rather too small, by noise alone; the verdict, which looks at all of them, is not.
    """

    verdict: str
    interval: Interval
    rival: str
    seeds: list[int]


def verdicts(rows: Rows) -> list[Verdict]:
    """The ``claims`` of ``claims.json``; also those that no run speaks about yet."""
    found: list[Verdict] = []
    for claim in CLAIMS:
        measured = _measured(claim, rows, claim.metric)
        entry: Verdict = {
            "id": claim.id,
            "statement": claim.statement,
            "source": claim.source,
            **_difference(measured),
            "interval": [_rounded(measured.interval.low), _rounded(measured.interval.high)],
            "level": LEVEL,
            "unit": claim.unit,
            "seeds": measured.seeds,
        }
        if claim.note:
            entry["note"] = claim.note
        if measured.rival:
            entry["smallest_over"] = measured.rival
        for name, metric in _ALSO.items() if claim.by_accuracy else ():
            entry[name] = _difference(_measured(claim, rows, metric))
        found.append(entry)
    return found


def _measured(claim: Claim, rows: Rows, metric: Metric) -> _Measured:
    """Of the seeds that have the difference to every rival."""
    several: dict[str, list[float]] = {rival: [] for rival in claim.measures}
    seeds = []
    for seed in rows.seeds:
        values = [measure(rows, seed, metric) for measure in claim.measures.values()]
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            continue
        seeds.append(seed)
        for differences, value in zip(several.values(), known, strict=True):
            differences.append(value)
    rival = min(several, key=lambda name: statistics.fmean(several[name])) if seeds else ""
    verdict = verdict_of_all(list(several.values()))
    return _Measured(verdict, t_interval(several[rival] if seeds else []), rival, seeds)


def _difference(measured: _Measured) -> Difference:
    return {
        "verdict": measured.verdict,
        "difference": _rounded(measured.interval.mean),
        "standard_error": _rounded(measured.interval.standard_error),
    }


def _rounded(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 4)
