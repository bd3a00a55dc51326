"""Plots of the report page as SVG whose colours follow the page's light or dark mode.

Each plot comes in two sizes, of which the page shows the one that fits the window: text in an SVG
shrinks with it, and a plot made for a wide window cannot be read on a phone.
"""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_INK, _LINE, _PLAIN = "#010203", "#040506", "#070809"  # placeholders for the page's own colours
_SIZES = {"wide": (8.4, 3.1), "narrow": (3.7, 3.0)}  # inches
Cosines = tuple["Sequence[float]", "Sequence[float]"]
"""Of images and their own jigsaws, and of images and other images' jigsaws."""

Curves = dict[str, tuple["Sequence[float]", "Sequence[float]"]]
"""Title of a panel → values, and the chance level beside each."""


def loss_curve_svg(
    curve: Sequence[tuple[int, float]], size: str = "wide", level: float | None = None
) -> str:
    """Draw the loss over the iterations.

    Args:
        curve: (iteration, loss), at least one; values that are not finite leave gaps.
        size: ``wide`` or ``narrow``.
        level: the loss at chance, log(N + 1), or None.
    """

    def draw(figure: Figure) -> None:
        from matplotlib.ticker import MaxNLocator

        iterations, losses = np.array(curve, dtype=float).T
        axes = figure.subplots()
        busy = len(curve) > 60  # then the curve itself is faint, and its mean is drawn over it
        faint, marker = (0.35, "") if busy else (1.0, ".")
        axes.plot(iterations, losses, color=_LINE, lw=1, alpha=faint, marker=marker)
        if busy:
            axes.plot(iterations, smoothed(losses), color=_LINE, lw=2.2)
        if level is not None:
            axes.axhline(level, color=_PLAIN, lw=1.4, ls="--")
            axes.margins(y=0.14)
            axes.annotate(
                f"log(N + 1) = {level:.2f}",
                (1, level),
                (0, -4),  # points: below the line, and so below the curve
                xycoords=("axes fraction", "data"),
                textcoords="offset points",
                ha="right",
                va="top",
                color=_INK,
                fontsize=9,
            )
        axes.set_xlabel("iteration", color=_INK)
        axes.set_ylabel("loss", color=_INK)
        axes.grid(axis="y", color=_INK, alpha=0.15)
        axes.margins(x=0.01)
        ticks = 4 if size == "narrow" else 9
        axes.xaxis.set_major_locator(MaxNLocator(ticks, integer=True))
        _plain(axes)

    return _svg(draw, size)


def monitor_svg(curves: Curves, epochs: Sequence[int], size: str = "wide") -> str:
    """Draw measures over the epochs, each in a panel with its chance level beside it.

    Args:
        curves: one value and chance level for each epoch.
        epochs: numbers of the epochs, from 1.
        size: ``wide``, panels side by side, or ``narrow``, two a row.
    """

    def draw(figure: Figure) -> None:
        from matplotlib.ticker import MaxNLocator

        across = 2 if size == "narrow" else len(curves)
        down = -(-len(curves) // across)
        panels = [figure.add_subplot(down, across, i + 1) for i in range(len(curves))]
        marker = "." if len(epochs) < 20 else ""
        for axes, (title, (values, chance)) in zip(panels, curves.items(), strict=True):
            axes.plot(epochs, chance, color=_PLAIN, lw=1.4, ls="--", marker=marker)
            axes.plot(epochs, values, color=_LINE, lw=2, marker=marker)
            axes.set_title(title, color=_INK, fontsize=10)
            axes.grid(axis="y", color=_INK, alpha=0.15)
            axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
            _plain(axes)
        for axes in panels[-across:]:
            axes.set_xlabel("epoch", color=_INK)

    return _svg(draw, size)


def cosines_svg(cosines: Mapping[str, Cosines], size: str = "wide") -> str:
    """Draw how like an image's embedding is to that of its own and of other images' jigsaws.

    Args:
        cosines: title of a panel → cosines of own and of other pairs.
        size: ``wide``, panels side by side, or ``narrow``, one below the other.
    """

    def draw(figure: Figure) -> None:
        shape = (len(cosines), 1) if size == "narrow" else (1, len(cosines))
        panels = np.atleast_1d(figure.subplots(*shape, sharex=True)).ravel()
        values = np.concatenate(
            [np.asarray(part, float) for pair in cosines.values() for part in pair]
        )
        edges = np.linspace(min(-0.2, values.min()), 1, 41)
        for axes, (title, (own, other)) in zip(panels, cosines.items(), strict=True):
            for part, color in ((other, _PLAIN), (own, _LINE)):
                heights, _ = np.histogram(part, edges, density=True)
                axes.stairs(heights, edges, color=color, fill=True, alpha=0.45)
                axes.stairs(heights, edges, color=color, lw=1.6)
            axes.set_title(title, color=_INK, fontsize=10)
            axes.set_yticks([])
            axes.set_xlim(edges[0], 1)
            _plain(axes)
        for axes in panels if size == "wide" else panels[-1:]:
            axes.set_xlabel("cosine", color=_INK)

    return _svg(draw, size)


def smoothed(values: NDArray[np.floating]) -> NDArray[np.floating]:
    """Mean over a thirtieth of the values on either side; those not finite are left out."""
    good = np.isfinite(values)
    window = np.ones(2 * max(1, len(values) // 30) + 1)
    total = np.convolve(np.where(good, values, 0), window)[len(window) // 2 :][: len(values)]
    count = np.convolve(good.astype(float), window)[len(window) // 2 :][: len(values)]
    return np.divide(total, count, out=np.full(len(values), np.nan), where=count > 0)


def _plain(axes: Axes) -> None:
    axes.tick_params(colors=_INK, length=0)
    axes.spines[:].set_visible(False)
    axes.axhline(axes.get_ylim()[0], color=_INK, lw=0.8, alpha=0.4)


def _svg(draw: Callable[[Figure], None], size: str) -> str:
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    # "none" keeps words as words: small, searchable, and in the page's font
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": size, "font.size": 10}):
        figure = Figure(figsize=_SIZES[size], layout="constrained")
        FigureCanvasSVG(figure)
        draw(figure)
        stream = io.StringIO()
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    svg = stream.getvalue()
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    attributes = f'class="{size}" aria-hidden="true"'
    svg = re.sub(r'width="[\d.]+pt" height="[\d.]+pt"', attributes, svg, count=1)
    svg = re.sub(r"font: ([\d.]+px)[^;\"]*", r"font: \1 var(--font)", svg)
    for placeholder, name in ((_INK, "ink"), (_LINE, "accent"), (_PLAIN, "plain")):
        svg = svg.replace(placeholder, f"var(--{name})")
    return svg
