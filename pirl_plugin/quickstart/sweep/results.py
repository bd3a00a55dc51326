"""What a sweep measured: a table, in Markdown and JSON, and the figure of Sec. 4."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from pirl_plugin.evaluation.tables.published import published
from pirl_plugin.quickstart.sweep.values import NUM_ORDERS, SWEEPS
from pirl_plugin.utils.outputs import write_json, write_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_STYLES = {"PIRL": ("C0", "o", "-"), "Jigsaw": ("C1", "s", "--")}


_MEASURES = {"VOC07": "VOC07 SVM mAP", "top-1": "linear top-1"}


@dataclass(frozen=True)
class Result:
    """One model of a sweep.

    Attributes:
        method: ``PIRL`` or ``Jigsaw``.
        value: of what is swept.
        top1: layer → top-1 of its linear classifier, percent; empty where nothing was measured.
        voc07: layer → mAP of its SVMs on VOC07, percent; empty where nothing was measured.
    """

    method: str
    value: float
    top1: dict[str, float]
    voc07: dict[str, float] = field(default_factory=dict)

    @property
    def best_layer(self) -> str | None:
        """The layer that is reported, as in the paper."""
        return _best_layer(self.top1)

    @property
    def best(self) -> float | None:
        """Its top-1, percent."""
        return self.top1[self.best_layer] if self.best_layer else None

    def measured(self, measure: str) -> dict[str, float]:
        """Layer → percent, of ``VOC07`` or ``top-1``."""
        return self.voc07 if measure == "VOC07" else self.top1


def write_results(
    out: Path, name: str, results: Sequence[Result], settings: Mapping[str, object]
) -> None:
    """Write ``results.md``, ``results.json``, ``figure.png`` and ``figure.svg`` into a folder.

    Args:
        out: the folder.
        name: of the sweep.
        results: also those without a measurement.
        settings: what the runs were made with. The paper's printed value is drawn where ``scale``
            is ``paper``.
    """
    write_text(out / "results.md", markdown(name, results, settings))
    rows = []
    for r in results:
        row = {"method": r.method, "value": r.value, "top1": r.top1}
        row |= {"best_layer": r.best_layer, "best_top1": r.best}
        if "VOC07" in settings:
            layer = _best_layer(r.voc07)
            row |= {"voc07": r.voc07, "best_voc07_map": r.voc07[layer] if layer else None}
        rows.append(row)
    content = {"sweep": name, "settings": dict(settings), "results": rows}
    write_json(out / "results.json", content)
    drawing = figure(name, results, settings.get("scale") == "paper")
    drawing.savefig(out / "figure.png", dpi=200)
    drawing.savefig(out / "figure.svg", metadata={"Date": None})


def markdown(name: str, results: Sequence[Result], settings: Mapping[str, object]) -> str:
    """The table: a row for each value, a column for each method, blank where nothing was run."""
    methods = list(dict.fromkeys(result.method for result in results))
    measures = _measures(results)
    found = {(result.method, result.value): result for result in results}
    several = len(measures) > 1
    heads = [f"{m}, {_MEASURES[k]}" if several else m for m in methods for k in measures]
    lines = [
        f"| {SWEEPS[name].symbol} | {' | '.join(heads)} |".replace("|T|", "\\|T\\|"),
        "|---|" + "---|" * len(heads),
    ]
    for value in sorted({result.value for result in results}):
        cells = [_cell(found.get((method, value)), k) for method in methods for k in measures]
        lines.append(f"| {label(value)} | {' | '.join(cells)} |")
    if several:
        lines += ["", "Mean average precision of linear SVMs on VOC07, percent, of the best layer."]
    lines += [
        "",
        "Top-1 of linear classifiers on the frozen trunk, percent, of the best layer.",
        "",
        *(f"- {key}: {text}" for key, text in settings.items() if text),
    ]
    if settings.get("scale") == "paper":
        lines.append(f"- paper: {published_note(name)}")
    return "\n".join(lines) + "\n"


def published_note(name: str) -> str:
    """What the paper prints of the sweep's curve: one point, that of Table 5."""
    value = published(5, "PIRL (Jigsaw)")["VOC07" if name == "permutations" else "ImageNet"]
    kind = "mAP on VOC07" if name == "permutations" else "top-1"
    symbol, at = SWEEPS[name].symbol, SWEEPS[name].published_at
    where = f"at an {symbol} not stated" if at is None else f"at {symbol} = {label(at)}"
    return f"{value} {kind} {where} (Table 5); the rest of the curve is a plot without numbers"


def label(value: float) -> str:
    """A value as people read it: ``0.25``, ``10,000``, ``9!``."""
    return "9!" if value == NUM_ORDERS else f"{value:,}"


def _best_layer(layers: Mapping[str, float]) -> str | None:
    return max(layers, key=lambda layer: layers[layer]) if layers else None


def _measures(results: Sequence[Result]) -> list[str]:
    """The paper's measure first, where it was taken."""
    return ["VOC07", "top-1"] if any(result.voc07 for result in results) else ["top-1"]


def _cell(result: Result | None, measure: str) -> str:
    layers = result.measured(measure) if result is not None else {}
    best = _best_layer(layers)
    if best is None:
        return ""
    return f"{layers[best]:.1f} {best}" if len(layers) > 1 else f"{layers[best]:.1f}"


def figure(name: str, results: Sequence[Result], of_the_paper: bool = False) -> Figure:
    """What was measured against the swept value: a line for each method, with gaps.

    Args:
        name: of the sweep.
        results: also those without a measurement.
        of_the_paper: whether to draw the value that the paper prints for these settings.
    """
    from matplotlib.figure import Figure

    measures = _measures(results)
    drawing = Figure(figsize=(5.2, 3.2 * len(measures)), layout="constrained")
    for axes, measure in zip(np.atleast_1d(drawing.subplots(len(measures))), measures, strict=True):
        _draw(axes, name, results, measure)
        # The paper measures |T| on VOC07 and the other sweeps on ImageNet.
        if of_the_paper and (measure == "VOC07") == (name == "permutations"):
            y = published(5, "PIRL (Jigsaw)")["VOC07" if measure == "VOC07" else "ImageNet"]
            x = SWEEPS[name].published_at
            if x is None:
                axes.axhline(y, color="0.55", ls=":", zorder=1, label="paper, Table 5")
            else:
                axes.plot(x, y, "*", color="0.55", ms=11, zorder=1, ls="", label="paper, Table 5")
        if len(axes.lines) > 1:
            axes.legend(frameon=False)
    return drawing


def _draw(axes: Axes, name: str, results: Sequence[Result], measure: str) -> None:
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    sweep = SWEEPS[name]
    values = sorted({result.value for result in results})
    if sweep.whole:
        axes.set_xscale("log")
    for method in dict.fromkeys(result.method for result in results):
        color, marker, line = _STYLES[method]
        mine = sorted((r for r in results if r.method == method), key=lambda r: r.value)
        y = [max(r.measured(measure).values(), default=math.nan) for r in mine]
        axes.plot([r.value for r in mine], y, color=color, marker=marker, ls=line, label=method)
    axes.xaxis.set_major_locator(FixedLocator(values))
    axes.xaxis.set_major_formatter(FixedFormatter([label(value) for value in values]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.tick_params(axis="x", labelsize=8)
    axes.set_xlabel(sweep.axis)
    axes.set_ylabel("VOC07 mAP, SVM (%)" if measure == "VOC07" else "Top-1 accuracy, linear (%)")
    axes.grid(alpha=0.25)
