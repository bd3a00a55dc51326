"""Trials of a detection run, put together: mean ± standard deviation, beside the paper's."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any, TypedDict

from pirl_plugin.evaluation.published import DETECTION_ROWS as ROWS
from pirl_plugin.evaluation.published import published

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

METRICS = ("AP", "AP50", "AP75")


class Summary(TypedDict):
    """Of the finished trials: mean and standard deviation by metric, percent."""

    finished: int
    mean: dict[str, float] | None
    sd: dict[str, float] | None


def summarize(trials: Sequence[Mapping[str, Any]]) -> Summary:
    """Mean and standard deviation of the finished trials.

    Args:
        trials: each with ``AP``, ``AP50`` and ``AP75`` in percent, or with ``error``.

    Returns:
        ``mean`` and ``sd`` by metric, percent, and ``finished``, their number. ``sd`` is that of a
        sample (n − 1) and None of fewer than two trials; ``mean`` is None of none.
    """
    done = [t for t in trials if "error" not in t]
    values = {m: [t[m] for t in done] for m in METRICS}
    return {
        "finished": len(done),
        "mean": {m: statistics.mean(v) for m, v in values.items()} if done else None,
        "sd": {m: statistics.stdev(v) for m, v in values.items()} if len(done) > 1 else None,
    }


def table(config: str, summary: Summary) -> str:
    """Measured and the paper's figures as aligned text."""
    rows: list[tuple[str, ...]] = [("", *METRICS)]
    if summary["mean"]:
        sd = summary["sd"] or {}
        cells = (
            f"{summary['mean'][m]:.1f}" + (f" ± {sd[m]:.1f}" if m in sd else "") for m in METRICS
        )
        rows.append((f"measured, {summary['finished']} finished", *cells))
    number, names = ROWS.get(config, (0, ()))
    for name in names:
        figures = published(number, name)
        rows.append((f"paper, {name}", *(f"{figures[m]:.1f}" for m in METRICS)))
    return "\n".join(f"{row[0]:22}" + "".join(f"{cell:>13}" for cell in row[1:]) for row in rows)
