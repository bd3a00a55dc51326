"""The figure of a sweep: accuracy against what is swept."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

from pirl_plugin.experiments.claims.drawing import COLORS, DASHED, METRICS, new_figure
from pirl_plugin.experiments.claims.methods import METHODS
from pirl_plugin.experiments.claims.paper import swept
from pirl_plugin.experiments.sweep.results import label
from pirl_plugin.experiments.sweep.values import SWEEPS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from pirl_plugin.experiments.claims.claims_file import ClaimRow, Metric
    from pirl_plugin.experiments.claims.rows import Rows


def sweep_figure(rows: Rows, name: str) -> Figure | None:
    """A dot a model, and a line over the means of the seeds that have all values of a sweep.

    On the linear panel a thin line is that of the best layer, and a dotted vertical one the value
    whose figure the paper prints.

    Args:
        rows: the finished runs.
        name: of the sweep.

    Returns:
        None where fewer than two values have a run.
    """
    models = {method: rows.sweeps(name, method) for method in rows.swept_methods(name)}
    values = sorted(
        {value for seeds in models.values() for runs in seeds.values() for value in runs}
    )
    if len(values) < 2:
        return None
    drawing, panels = new_figure(2, 9.0)
    for axes, (metric, title) in zip(panels, METRICS.items(), strict=True):
        for method, seeds in models.items():
            whole = rows.whole_sweeps(name, method)
            _draw(axes, method, list(seeds.values()), whole, metric)
            if metric == "linear_top1" and whole:
                best = _means(whole, "linear_best_top1")
                axes.plot(list(best), list(best.values()), color=COLORS[method], lw=0.8,
                          ls=DASHED.get(method, "-"), marker="_",
                          label=f"{METHODS[method].label}, best layer")  # fmt: skip
        _describe(axes, name, values)
        axes.set_ylabel(title)
    at, text = swept(name)
    if at is not None:
        panels[0].axvline(at, color="0.6", ls=":", lw=1)
    panels[0].set_title(text, fontsize=9, color="0.4")
    handles, labels = panels[0].get_legend_handles_labels()
    if handles:
        drawing.legend(handles, labels, loc="outside lower center", ncols=len(handles),
                       frameon=False, fontsize=8)  # fmt: skip
    return drawing


def _draw(
    axes: Axes,
    method: str,
    sweeps: Sequence[dict[float, ClaimRow]],
    whole: Sequence[dict[float, ClaimRow]],
    metric: Metric,
) -> None:
    for runs in sweeps:
        top1 = [row[metric] for row in runs.values()]
        axes.plot(list(runs), top1, ".", color=COLORS[method])
    if whole:
        means = _means(whole, metric)
        count = f" ({len(whole)} seeds)" if len(whole) > 1 else ""
        axes.plot(list(means), list(means.values()), color=COLORS[method],
                  ls=DASHED.get(method, "-"), label=METHODS[method].label + count)  # fmt: skip


def _means(whole: Sequence[dict[float, ClaimRow]], metric: Metric) -> dict[float, float]:
    return {value: fmean(runs[value][metric] for runs in whole) for value in whole[0]}


def _describe(axes: Axes, name: str, values: Sequence[float]) -> None:
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    if SWEEPS[name].whole:
        axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(values))
    axes.xaxis.set_major_formatter(FixedFormatter([label(value) for value in values]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(SWEEPS[name].axis)
    axes.grid(alpha=0.25)
