"""The figures of the report page as text that can stand in HTML: PNG addresses and an SVG."""

from __future__ import annotations

import base64
import io
import re

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Picture = NDArray[np.uint8]
"""One RGB image, uint8 (H, W, 3)."""

_INK, _LINE = "#010203", "#040506"  # stand-ins in the SVG for the page's own colours


def png_uri(picture: Picture) -> str:
    """Encodes uint8 (H, W, 3) or (H, W, 4) as the `data:` address of a PNG."""
    picture = np.asarray(picture)
    if picture.ndim != 3 or picture.shape[2] not in (3, 4) or picture.dtype != np.uint8:
        raise ValueError(
            f"a picture has shape {picture.shape} and dtype {picture.dtype}, expected uint8 "
            "(H, W, 3): undo the normalisation, multiply by 255 and permute (C, H, W) first"
        )
    stream = io.BytesIO()
    Image.fromarray(picture).save(stream, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()


def patch_grid(patches: list[Picture]) -> Picture:
    """Lays nine (h, w, 3) patches out three by three with clear gaps: uint8 (H, W, 4)."""
    shapes = {np.shape(patch) for patch in patches}
    if len(patches) != 9 or len(shapes) != 1:
        raise ValueError(
            f"a jigsaw has {len(patches)} patches of shapes {sorted(shapes)}, expected nine of one "
            "shape (h, w, 3): give the patches of one image"
        )
    high, wide, _ = shapes.pop()
    gap = max(1, wide // 12)
    grid = np.zeros((3 * high + 2 * gap, 3 * wide + 2 * gap, 4), np.uint8)
    for number, patch in enumerate(patches):
        top, left = (number // 3) * (high + gap), (number % 3) * (wide + gap)
        grid[top : top + high, left : left + wide, :3] = patch
        grid[top : top + high, left : left + wide, 3] = 255
    return grid


def loss_curve_svg(curve: list[tuple[int, float]]) -> str:
    """Draws the loss over the iterations as an SVG element coloured by the page's variables."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    iterations, losses = np.array(curve, dtype=float).T
    # "none" keeps words as words: small, searchable, and in the page's font
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "report", "font.size": 10}):
        figure = Figure(figsize=(8.4, 3.1), layout="constrained")
        axes = FigureCanvasSVG(figure).figure.subplots()
        busy = len(curve) > 60  # then the curve itself is faint, and its mean is drawn over it
        faint, marker = (0.35, "") if busy else (1.0, ".")
        axes.plot(iterations, losses, color=_LINE, lw=1, alpha=faint, marker=marker)
        if busy:
            smooth = _moving_average(losses, len(curve) // 30)
            axes.plot(iterations, smooth, color=_LINE, lw=2.2)
        axes.set_xlabel("iteration", color=_INK)
        axes.set_ylabel("loss", color=_INK)
        axes.tick_params(colors=_INK, length=0)
        axes.grid(axis="y", color=_INK, alpha=0.15)
        axes.spines[:].set_visible(False)
        axes.margins(x=0.01)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        stream = io.StringIO()
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    svg = stream.getvalue()
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r'width="[\d.]+pt" height="[\d.]+pt"', 'aria-hidden="true"', svg, count=1)
    svg = re.sub(r"font: ([\d.]+px)[^;\"]*", r"font: \1 var(--font)", svg)
    return svg.replace(_INK, "var(--ink)").replace(_LINE, "var(--accent)")


def _moving_average(values: NDArray[np.floating], reach: int) -> NDArray[np.floating]:
    """Mean over up to `reach` values on either side; values that are not finite are left out."""
    good = np.isfinite(values)
    window = np.ones(2 * max(1, reach) + 1)
    total = np.convolve(np.where(good, values, 0), window)[len(window) // 2 :][: len(values)]
    count = np.convolve(good.astype(float), window)[len(window) // 2 :][: len(values)]
    return np.divide(total, count, out=np.full(len(values), np.nan), where=count > 0)
