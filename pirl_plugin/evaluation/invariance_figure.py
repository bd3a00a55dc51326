"""The figure of ``pirl-plugin invariance``: the distributions of distances, as in Fig. 4."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pirl_plugin.evaluation.invariance import LARGEST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from pirl_plugin.evaluation.invariance_run import Comparison, Kind, ModelDistances


def invariance_figure(models: Sequence[ModelDistances]) -> Figure:
    """Filled: an image and its own transformed versions. Dashed: different images.

    Args:
        models: as in ``invariance.json``. The second panel has BatchNorm's statistics of each kind
            of input; where a model has distances to the memory bank, a third shows them.
    """
    from matplotlib.figure import Figure

    panels: list[tuple[Kind, str]] = [
        ("heads", r"$f(v_I)$ and $g(v_{I^t})$, the running statistics of BatchNorm"),
        ("own_statistics", r"$f(v_I)$ and $g(v_{I^t})$, statistics of each kind of input"),
    ]
    if any(model["bank"] for model in models):
        panels.append(("bank", r"row $m_I$ of the memory bank and $g(v_{I^t})$"))
    drawing = Figure(figsize=(6.4, 3.3 * len(panels)), layout="constrained")
    for axes, (key, title) in zip(
        np.atleast_1d(drawing.subplots(len(panels))), panels, strict=True
    ):
        for i, model in enumerate(models):
            if found := model[key]:
                pooled = "" if model["representation"].startswith("f(") else ", pooled features"
                _draw(axes, model["name"] + pooled, found, f"C{i}")
        axes.set_title(title, fontsize=10)
        axes.set_xlim(0, LARGEST)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("$l_2$ distance of unit vectors")
        axes.set_ylabel("density")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8)
    return drawing


def _draw(axes: Axes, name: str, found: Comparison, color: str) -> None:
    same, different = (found[key] for key in ("same", "different"))
    edges = np.linspace(0, LARGEST, len(same["density"]) + 1)
    label = f"{name}, same image ({same['mean']:.2f} ± {same['std']:.2f})"
    axes.stairs(same["density"], edges, fill=True, color=color, alpha=0.35)
    axes.stairs(same["density"], edges, color=color, lw=1.5, label=label)
    label = f"{name}, different images ({different['mean']:.2f} ± {different['std']:.2f})"
    axes.stairs(different["density"], edges, color=color, lw=1.2, ls="--", label=label)
