"""The paper's Figures 2 and 5 with the figures of finished runs beside the published points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from published import LAYERS, published_parameters

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Point = tuple[float, float, str]
"""Position on both axes, and label."""
_GRAY = "0.45"
_RED = "#b2182b"  # PIRL, as in the paper
_BLUE = "#2166ac"  # runs
_LINE_HEIGHT = 1.3  # label height, in percent


def draw_parameters(tables: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw top-1 on ImageNet against parameters (Fig. 2).

    Published points are circles, with PIRL in red. Runs are stars; hollow stars
    fill no row in the paper.

    Args:
        tables: as from :func:`paper_tables.lay_out`.
    """
    from matplotlib.figure import Figure

    parameters = published_parameters()
    figure = Figure(figsize=(8, 6.4), layout="constrained")
    axes = figure.subplots()
    # The paper's circles.
    paper: list[Point] = []
    for row in _table(tables, 2)["rows"]:
        method = row["method"]
        percent = row["published"][0]
        if method in parameters and percent is not None:
            axes.plot(
                parameters[method], percent, "o", color=_RED if method.startswith("PIRL") else _GRAY
            )
            paper.append((parameters[method], percent, method))
    _label(axes, paper, left=False)

    # Stars for runs. Runs with other networks are omitted: their parameters are not known.
    runs: list[Point] = []
    for row in _table(tables, 2)["rows"]:
        measured = row["measured"][0]
        millions = parameters.get(row.get("nearest", row["method"]))
        other_network = any("MODEL.TRUNK" in key for key in row["differs"])
        if measured is None or millions is None or other_network:
            continue
        fills_row = not row["differs"]
        face = _BLUE if fills_row else "none"
        axes.plot(millions, measured, "*", color=_BLUE, markerfacecolor=face, markersize=13)
        name = row["method"] if fills_row else row["method"].partition(":")[0]
        runs.append((millions, measured, f"{name}: {measured:.1f}"))
    _label(axes, runs, left=True)

    ticks = [12, 25, 50, 100, 200, 400, 800]
    axes.set_xscale("log")
    axes.set_xlim(7, 1100)
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("network parameters, millions")
    axes.set_ylabel("linear classifier on ImageNet, top-1, %")
    legend = [
        ("o", _RED, _RED, "PIRL, paper"),
        ("o", _GRAY, _GRAY, "other methods, paper"),
        ("*", _BLUE, _BLUE, "runs"),
        ("*", _BLUE, "none", "runs with other settings"),
    ]
    _legend(axes, legend)
    axes.grid(alpha=0.25)
    return figure


def draw_layers(tables: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw top-1 on ImageNet by layer (Fig. 5): the paper's dashed, runs solid.

    The paper's figure has PIRL and Jigsaw. Other methods are drawn if they have runs; runs that
    fill no row in the paper are dotted.

    Args:
        tables: as from :func:`paper_tables.lay_out`.
    """
    from matplotlib.figure import Figure

    table = _table(tables, 7)
    columns = [table["columns"].index(f"ImageNet {layer}") for layer in LAYERS]
    figure = Figure(figsize=(7, 4.6), layout="constrained")
    axes = figure.subplots()
    colors = {"PIRL": _RED, "Jigsaw": "#4d4d4d"}
    positions = range(len(LAYERS))
    for row in table["rows"]:
        published = [row["published"][column] for column in columns]
        measured = [row["measured"][column] for column in columns]
        has_run = any(value is not None for value in measured)
        method = row["method"]
        if method not in ("PIRL", "Jigsaw") and not has_run:
            continue
        # A method's run uses the color of its published line.
        nearest = row.get("nearest", method)
        color = colors.setdefault(nearest, f"C{len(colors)}")
        if any(value is not None for value in published):
            _line(axes, positions, published, f"{method}, paper", "o--", color)
        if has_run:
            fills_row = not row["differs"]
            name = f"{method}, run" if fills_row else method.partition(":")[0]
            _line(axes, positions, measured, name, "*-" if fills_row else "*:", color)
    axes.set_xticks(list(positions), LAYERS)
    axes.set_ylim(0)
    axes.set_ylabel("linear classifier on ImageNet, top-1, %")
    axes.legend(frameon=False, fontsize=8, loc="upper left")
    axes.grid(alpha=0.25)
    return figure


def _table(tables: Sequence[Mapping[str, Any]], number: int) -> Mapping[str, Any]:
    return next(table for table in tables if table["number"] == number)


def _line(
    axes: Axes,
    positions: Sequence[int],
    values: Sequence[float | None],
    label: str,
    style: str,
    color: str,
) -> None:
    points = [(x, value) for x, value in zip(positions, values, strict=True) if value is not None]
    size = 11 if "*" in style else 5
    axes.plot(*zip(*points, strict=True), style, color=color, label=label, markersize=size)


def _label(axes: Axes, points: Sequence[Point], left: bool) -> None:
    """Write labels beside points, and move overlapping labels apart."""
    columns: dict[float, list[Point]] = {}
    for point in points:
        columns.setdefault(point[0], []).append(point)
    for column in columns.values():
        column.sort(key=lambda point: point[1])
        heights = _apart([percent for _, percent, _ in column])
        for (x, _, text), height in zip(column, heights, strict=True):
            axes.annotate(
                text,
                (x, height),
                (-9 if left else 7, 0),
                textcoords="offset points",
                fontsize=8,
                ha="right" if left else "left",
                va="center",
                color=_BLUE if left else "black",
            )


def _apart(heights: list[float]) -> list[float]:
    """Move sorted heights as little as needed to be at least a line apart.

    Example:
        >>> [round(height, 2) for height in _apart([40.0, 60.0, 60.2])]
        [40.0, 59.45, 60.75]
    """
    moved = list(heights)
    for _ in range(100):  # pairs push each other apart until all fit
        for lower in range(len(moved) - 1):
            overlap = _LINE_HEIGHT - (moved[lower + 1] - moved[lower])
            if overlap > 0:
                moved[lower] -= overlap / 2
                moved[lower + 1] += overlap / 2
    return moved


def _legend(axes: Axes, entries: Sequence[tuple[str, str, str, str]]) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], marker=marker, color=color, markerfacecolor=face, label=label, ls="")
        for marker, color, face, label in entries
    ]
    axes.legend(handles=handles, frameon=False, fontsize=8, loc="lower right")
