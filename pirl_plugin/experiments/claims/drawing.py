"""What the figures of a comparison share: colours, lines, names and size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pirl_plugin.experiments.claims.methods import METHODS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from pirl_plugin.experiments.claims.claims_file import Metric

METRICS: dict[Metric, str] = {"linear_top1": "Linear, top-1 (%)", "knn_top1": "kNN, top-1 (%)"}
_PALETTE = ("0.5", "C0", "C3", "C1", "C6", "C8", "C2", "k", "C4", "C9", "C5")
COLORS = dict(zip(METHODS, _PALETTE, strict=True))
DASHED = {"jigsaw": "--", "rotation": "--", "vissl_pirl": ":", "npidpp": "-."}


def new_figure(columns: int, width: float) -> tuple[Figure, Sequence[Axes]]:
    """A figure of panels side by side.

    Args:
        columns: how many.
        width: of all, inches.
    """
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.rcParams["svg.hashsalt"] = "pirl"  # the same runs, the same bytes
    drawing = Figure(figsize=(width, 3.6), layout="constrained")
    return drawing, drawing.subplots(1, columns, squeeze=False)[0]
