"""What a sweep measured: a table, in Markdown and JSON, and the figure of Sec. 4."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pirl_plugin.evaluation.sweep_values import NUM_ORDERS, SWEEPS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from matplotlib.figure import Figure

_STYLES = {"PIRL": ("C0", "o", "-"), "Jigsaw": ("C1", "s", "--")}


@dataclass(frozen=True)
class Result:
    """One model of a sweep.

    Attributes:
        method: ``PIRL`` or ``Jigsaw``.
        value: of what is swept.
        top1: layer → top-1 of its linear classifier, percent; empty where nothing was measured.
    """

    method: str
    value: float
    top1: dict[str, float]

    @property
    def best_layer(self) -> str | None:
        """The layer that is reported, as in the paper."""
        return max(self.top1, key=lambda layer: self.top1[layer]) if self.top1 else None

    @property
    def best(self) -> float | None:
        """Its top-1, percent."""
        return self.top1[self.best_layer] if self.best_layer else None


def write_results(
    out: Path, name: str, results: Sequence[Result], settings: Mapping[str, Any]
) -> None:
    """Write ``results.md``, ``results.json``, ``figure.png`` and ``figure.svg`` into a folder.

    Args:
        out: the folder.
        name: of the sweep.
        results: also those without a measurement.
        settings: what the runs were made with.
    """
    (out / "results.md").write_text(markdown(name, results, settings))
    rows = [asdict(r) | {"best_layer": r.best_layer, "best_top1": r.best} for r in results]
    content = {"sweep": name, "settings": dict(settings), "results": rows}
    (out / "results.json").write_text(json.dumps(content, indent=2) + "\n")
    drawing = figure(name, results)
    drawing.savefig(out / "figure.png", dpi=200)
    drawing.savefig(out / "figure.svg", metadata={"Date": None})


def markdown(name: str, results: Sequence[Result], settings: Mapping[str, Any]) -> str:
    """The table: a row for each value, a column for each method, blank where nothing was run."""
    methods = list(dict.fromkeys(result.method for result in results))
    found = {(result.method, result.value): result for result in results}
    lines = [
        f"| {SWEEPS[name].symbol} | {' | '.join(methods)} |".replace("|T|", "\\|T\\|"),
        "|---|" + "---|" * len(methods),
    ]
    for value in sorted({result.value for result in results}):
        cells = [_cell(found.get((method, value))) for method in methods]
        lines.append(f"| {label(value)} | {' | '.join(cells)} |")
    lines += [
        "",
        "Top-1 of linear classifiers on the frozen trunk, percent, of the best layer.",
        "",
        *(f"- {key}: {text}" for key, text in settings.items() if text),
    ]
    return "\n".join(lines) + "\n"


def label(value: float) -> str:
    """A value as people read it: ``0.25``, ``10,000``, ``9!``."""
    return "9!" if value == NUM_ORDERS else f"{value:,}"


def _cell(result: Result | None) -> str:
    if result is None or result.best is None:
        return ""
    several = len(result.top1) > 1
    return f"{result.best:.1f} {result.best_layer}" if several else f"{result.best:.1f}"


def figure(name: str, results: Sequence[Result]) -> Figure:
    """Top-1 against the swept value: a line for each method, with gaps where it was not run."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    sweep = SWEEPS[name]
    values = sorted({result.value for result in results})
    drawing = Figure(figsize=(5.2, 3.2), layout="constrained")
    axes = drawing.subplots()
    if sweep.whole:
        axes.set_xscale("log")
    for method in dict.fromkeys(result.method for result in results):
        color, marker, line = _STYLES[method]
        mine = sorted((r for r in results if r.method == method), key=lambda r: r.value)
        x, y = [r.value for r in mine], [math.nan if r.best is None else r.best for r in mine]
        axes.plot(x, y, color=color, marker=marker, ls=line, label=method)
    axes.xaxis.set_major_locator(FixedLocator(values))
    axes.xaxis.set_major_formatter(FixedFormatter([label(value) for value in values]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.tick_params(axis="x", labelsize=8)
    axes.set_xlabel(sweep.axis)
    axes.set_ylabel("Top-1 accuracy, linear (%)")
    axes.grid(alpha=0.25)
    if len(sweep.values) > 1:
        axes.legend(frameon=False)
    return drawing
