"""Figures from finished runs: accuracy against parameters (Fig. 2) and by layer (Fig. 5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pirl_plugin.evaluation.tables.published import LAYERS, published, published_parameters

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from pirl_plugin.evaluation.tables.layout import Table

_LOWER = {"LA (10 crops)": -6, "NPID++": -7, "DeepCluster": -8}  # labels that would overlap
_BY_LAYER = ("PIRL", "Jigsaw")  # of Fig. 5
_OTHERS = ("C1", "C2", "C4", "C5", "C6", "C8")  # colours of other runs; more are left to the table


def write_figures(out: Path, tables: Sequence[Table]) -> list[str]:
    """Write both figures as SVG and PNG; returns the names of the files.

    Args:
        out: an existing folder.
        tables: as :func:`~pirl_plugin.evaluation.tables.layout.lay_out` returns them.
    """
    names = []
    drawn = {"parameters": parameters_figure(tables), "layers": layers_figure(tables)}
    for name, figure in drawn.items():
        figure.savefig(out / f"accuracy_by_{name}.svg", metadata={"Date": None})
        figure.savefig(out / f"accuracy_by_{name}.png", dpi=200)
        names += [f"accuracy_by_{name}.svg", f"accuracy_by_{name}.png"]
    return names


def parameters_figure(tables: Sequence[Table]) -> Figure:
    """Linear ImageNet top-1 against millions of parameters, published and measured.

    A measured row is drawn where it is one of Table 2, whose networks have known sizes.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullFormatter, ScalarFormatter

    drawing = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = drawing.subplots()
    sizes = published_parameters()
    (table,) = [table for table in tables if table["number"] == 2]
    column = table["columns"].index("ImageNet")
    for row in table["rows"]:
        size, top1 = sizes.get(row["method"]), row["published"][column]
        if size is None or row["method"] == "Supervised":
            continue
        if top1 is not None:
            ours = row["method"].startswith("PIRL")
            color = "C3" if ours else "0.55"
            axes.plot(size, top1, "s" if ours else "o", color=color, mfc="none", ms=7)
            place = (5, _LOWER.get(row["method"], 4))  # points
            axes.annotate(
                row["method"],
                (size, top1),
                place,
                textcoords="offset points",
                fontsize=7.5,
                color=color,
            )
        measured = row["measured"][column]
        if measured is not None and not row["differs"]:
            axes.errorbar(size, measured, row["spread"][column], fmt="*", color="C0", ms=11)
    axes.plot([], [], "s", color="C3", mfc="none", label="PIRL, published")
    axes.plot([], [], "o", color="0.55", mfc="none", label="others, published")
    axes.plot([], [], "*", color="C0", ms=11, label="measured here")
    axes.set_xscale("log")
    axes.set_xticks([25, 50, 100, 200, 400, 700])
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_formatter(NullFormatter())
    _finish(axes, "Parameters (millions)", "ImageNet top-1, linear (%)")
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    return drawing


def layers_figure(tables: Sequence[Table]) -> Figure:
    """ImageNet top-1 of each layer: published dashed, measured solid with the spread of runs."""
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(6.8, 3.6), layout="constrained")
    axes = drawing.subplots()
    (table,) = [table for table in tables if table["number"] == 7]
    columns = [table["columns"].index(f"ImageNet {layer}") for layer in LAYERS]
    for i, method in enumerate(_BY_LAYER):
        figures = published(7, method)
        y = [_number(figures[f"ImageNet {layer}"]) for layer in LAYERS]
        axes.plot(LAYERS, y, "o--", color=f"C{3 * i}", mfc="none", label=f"{method}, published")
    others, left = iter(_OTHERS), 0
    for row in table["rows"]:
        measured = [row["measured"][column] for column in columns]
        if all(value is None for value in measured):
            continue
        known = row["method"] in _BY_LAYER
        color = f"C{3 * _BY_LAYER.index(row['method'])}" if known else next(others, None)
        if color is None:
            left += 1
            continue
        y = [_number(value) for value in measured]
        spread = [row["spread"][column] or 0.0 for column in columns]
        name = row["method"].partition(":")[0]  # "RUN, not PIRL"; the table says why
        name = name if len(name) <= 40 else f"{name[:38]}…"
        axes.errorbar(LAYERS, y, spread, fmt="*-", color=color, ms=9, label=f"{name}, here")
    _finish(axes, "Layer", "ImageNet top-1, linear (%)")
    title = f"{left} more runs: see the table" if left else None
    legend = {"frameon": False, "fontsize": 8, "title": title, "title_fontsize": 8}
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), **legend)
    return drawing


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


def _finish(axes: Axes, x: str, y: str) -> None:
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
