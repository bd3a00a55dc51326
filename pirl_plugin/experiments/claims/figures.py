"""The figures of a comparison, as SVG: accuracy during training and by layer, and distances."""

from __future__ import annotations

from collections import defaultdict
from statistics import fmean
from typing import TYPE_CHECKING

from pirl_plugin.evaluation.tables.published import LAYERS
from pirl_plugin.experiments.claims.drawing import COLORS, DASHED, METRICS, new_figure
from pirl_plugin.experiments.claims.methods import METHODS
from pirl_plugin.experiments.claims.paper import imagenet_by_layer
from pirl_plugin.experiments.claims.plan import PAIRS
from pirl_plugin.experiments.claims.sweep_figure import sweep_figure
from pirl_plugin.experiments.sweep.values import SWEEPS

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure

    from pirl_plugin.experiments.claims.claims_file import Axis
    from pirl_plugin.experiments.claims.rows import Rows


def write_figures(out: Path, rows: Rows) -> list[str]:
    """Write the figures that there are runs for.

    Args:
        out: the folder.
        rows: the finished runs.

    Returns:
        Their names.
    """
    drawings = {
        "accuracy_epochs": _curves(rows, "images_seen", "Images seen (thousands)", 1e3),
        "accuracy_time": _curves(rows, "seconds", "Seconds of pre-training", 1.0),
        "layers": _layers(rows),
        "invariance": _invariance(rows),
        **{f"sweep_{name}": sweep_figure(rows, name) for name in SWEEPS},
    }
    written = []
    for name, drawing in drawings.items():
        if drawing is not None:
            drawing.savefig(out / f"{name}.svg", metadata={"Date": None})
            written.append(f"{name}.svg")
    return written


def _curves(rows: Rows, axis: Axis, title: str, unit: float) -> Figure | None:
    """Accuracy during training: a line a method, means over seeds, a band from least to most."""
    runs = {method: [r for r in rows.of(method) if r[axis] is not None] for method in METHODS}
    trained = {method: found for method, found in runs.items() if found}
    if not trained:
        return None
    drawing, panels = new_figure(2, 10.5)
    for axes, (metric, name) in zip(panels, METRICS.items(), strict=True):
        start = fmean(row[metric] for row in runs["random"]) if runs["random"] else None
        for method, found in trained.items():
            if method == "random":
                axes.axhline(float(start or 0), color=COLORS[method], lw=1, label="Random init.")
                continue
            if method == "supervised":  # so far above that the others would lie on one another
                top1 = (f"{fmean(row[key] for row in found):.1f}" for key in METRICS)
                about = f"Supervised, not drawn:\nlinear {next(top1)}, kNN {next(top1)}"
                axes.plot([], [], " ", label=about)
                continue
            points = list(zip(*(row["points"] for row in found), strict=True))
            x = [fmean(point[axis] or 0 for point in seeds) / unit for seeds in points]
            values = [[point[metric] for point in seeds] for seeds in points]
            y = [fmean(seeds) for seeds in values]
            if start is not None and axis != "seconds":
                x, y, values = [0.0, *x], [start, *y], [[start], *values]
            count = f" ({len(found)} seeds)" if len(found) > 1 else ""
            axes.plot(x, y, color=COLORS[method], ls=DASHED.get(method, "-"), marker=".",
                      label=f"{METHODS[method].label}{count}")  # fmt: skip
            if len(found) > 1:
                low, high = [min(v) for v in values], [max(v) for v in values]
                axes.fill_between(x, low, high, color=COLORS[method], alpha=0.12, lw=0)
        if axis == "seconds":  # one method takes several times as long as the others
            axes.set_xscale("log")
        axes.set_xlabel(title)
        axes.set_ylabel(name)
        axes.grid(alpha=0.25)
    handles, labels = panels[0].get_legend_handles_labels()
    drawing.legend(handles, labels, loc="outside right center", frameon=False, fontsize=8)
    return drawing


def _layers(rows: Rows) -> Figure | None:
    """Accuracy by layer at the end of training, and the paper's."""
    measured: dict[str, list[list[float]]] = defaultdict(list)
    published = imagenet_by_layer()
    for method in (*published, "npidpp"):
        for row in rows.of(method):
            measured[method].append([row["linear_by_layer"][layer] for layer in LAYERS])
    if not measured:
        return None
    drawing, (ours, theirs) = new_figure(2, 11.0)
    for method, found in measured.items():
        layers = list(zip(*found, strict=True))
        ours.plot(LAYERS, [fmean(values) for values in layers], marker="o", color=COLORS[method],
                  ls=DASHED.get(method, "-"), label=METHODS[method].label)  # fmt: skip
        if len(found) > 1:
            low, high = map(min, layers), map(max, layers)
            ours.fill_between(LAYERS, [*low], [*high], color=COLORS[method], alpha=0.12, lw=0)
    for method, top1 in published.items():
        theirs.plot(LAYERS, top1, marker="o", color=COLORS[method], ls=DASHED.get(method, "-"))
    for axes, title in (
        (ours, "Here"),
        (theirs, "Paper: ImageNet, ResNet-50; its NPID++ for NPID"),
    ):
        axes.set_title(title, fontsize=10)
        axes.set_ylabel("Linear, top-1 (%)")
        axes.grid(alpha=0.25)
    handles, labels = ours.get_legend_handles_labels()
    drawing.legend(handles, labels, loc="outside right center", frameon=False, fontsize=8)
    return drawing


def _invariance(rows: Rows) -> Figure | None:
    """Distribution of the distances between an image and its transformed versions (Fig. 4)."""
    measured = {
        method: [one for seed in rows.seeds if (one := rows.invariance(method, seed))]
        for pair in PAIRS
        for method in pair
    }
    if not any(measured.values()):
        return None
    drawing, (axes,) = new_figure(1, 7.6)
    for method, found in measured.items():
        if found:
            y = [fmean(values) for values in zip(*(m["density"] for m in found), strict=True)]
            edges = [2 * i / len(y) for i in range(len(y) + 1)]
            mean, std = fmean(m["mean"] for m in found), fmean(m["std"] for m in found)
            other = fmean(m["different_mean"] for m in found)
            space = "embeddings" if METHODS[method].contrastive else "pooled features"
            about = (
                f"{METHODS[method].label}, {space}:\n"
                f"{mean:.2f} ± {std:.2f}; of different images {other:.2f}"
            )
            axes.stairs(y, edges, color=COLORS[method], ls=DASHED.get(method, "-"), label=about)
            axes.axvline(other, color=COLORS[method], ls=":", lw=1)
    axes.set_xlabel("l2 distance of unit vectors, image and transformed image")
    axes.set_ylabel("Density; dotted: mean of different images")
    drawing.legend(loc="outside right center", frameon=False, fontsize=8)
    return drawing
