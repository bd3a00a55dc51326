"""Trials of a detection run, put together: mean ± standard deviation, beside the paper's."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

METRICS = ("AP", "AP50", "AP75")
# Config -> rows of the paper's table for it: name, AP, AP50, AP75 (Tables 1 and the appendix's).
PAPER: dict[str, list[tuple[str, float, float, float]]] = {
    "voc07_pirl": [("PIRL", 44.7, 73.4, 47.0)],
    "voc0712_pirl": [("PIRL", 54.0, 80.7, 59.7), ("NPID++", 52.3, 79.1, 56.9)],
    "voc07_supervised_jigsaw": [("supervised", 43.8, 74.5, 45.9), ("Jigsaw", 37.7, 64.9, 38.0)],
    "voc0712_supervised_jigsaw": [
        ("supervised", 52.6, 81.1, 57.4),
        ("Jigsaw", 48.9, 75.1, 52.9),
    ],
    "voc0712_moco24k": [("MoCo", 55.2, 81.4, 61.2)],
}


def summarize(trials: Sequence[dict[str, Any]]) -> dict[str, Any]:
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


def table(config: str, summary: dict[str, Any]) -> str:
    """Measured and the paper's figures as aligned text."""
    rows: list[tuple[str, ...]] = [("", *METRICS)]
    if summary["mean"]:
        sd = summary["sd"] or {}
        cells = (
            f"{summary['mean'][m]:.1f}" + (f" ± {sd[m]:.1f}" if m in sd else "") for m in METRICS
        )
        rows.append((f"measured, {summary['finished']} finished", *cells))
    for name, *figures in PAPER.get(config, []):
        rows.append((f"paper, {name}", *(f"{figure:.1f}" for figure in figures)))
    return "\n".join(f"{row[0]:22}" + "".join(f"{cell:>13}" for cell in row[1:]) for row in rows)
