"""A page that shows what a pre-training run learnt: one HTML file, nothing loaded from outside.

Pictures are embedded as PNG, plots as SVG whose colours follow the page's light or dark mode, and
the words around them are in ``page.html.j2``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from pirl_plugin.quickstart.page.figures import PALETTE, Picture, patch_grid, png_uri
from pirl_plugin.quickstart.page.monitor import Measures, monitor_facts, signed
from pirl_plugin.quickstart.page.plots import Cosines, cosines_svg, loss_curve_svg, smoothed
from pirl_plugin.utils.outputs import write_text

Jigsaw = tuple[Picture, Picture, list[Picture]]
"""An original, its image view, and its nine patches in the order the network got them."""

_METRICS = {"linear_top1": "Linear probe", "knn_top1": "Nearest neighbours (kNN)"}
_NETWORKS = {"pirl": "PIRL", "random": "Random"}


@dataclass(frozen=True)
class Neighbors:
    """A query, and its nearest neighbours by each network.

    Attributes:
        query: the picture.
        query_class: its class, or "" where the images have no labels.
        pirl: picture and class of each neighbour by the pre-trained network, the nearest first.
        random: the same by the network before training.
    """

    query: Picture
    query_class: str
    pirl: list[tuple[Picture, str]]
    random: list[tuple[Picture, str]]


@dataclass(frozen=True)
class FeatureMap:
    """Thumbnails laid out by their features.

    Attributes:
        picture: uint8 (H, W, 4).
        classes: names, in the order of the colours of the frames; empty without labels.
        count: thumbnails.
    """

    picture: Picture
    classes: list[str]
    count: int


@dataclass(frozen=True)
class Report:
    """What the page shows.

    Attributes:
        title: the heading.
        results: ``{"random": {"linear_top1": percent, "knn_top1": percent}, "pirl": {the same},
            "seed": int, "epochs": int, "images_per_s": float, "seconds": float}``. Accuracies, or
            ``random`` and ``pirl`` whole, may be None or missing: the images had no labels.
        loss_curve: (iteration, loss), at least one; a loss that is not finite leaves a gap.
        jigsaws: samples of what the network got to see; may be empty.
        neighbors: samples of nearest neighbours; may be empty.
        settings: name to value, shown as a table. The value of "command", where there is one, is
            shown as the command that makes the page again.
        num_classes: classes, for the chance level; None without labels.
        num_test: test images, for the uncertainty of the accuracies; None without labels.
        by_class: ``pirl`` and ``random`` → class → kNN top-1, percent; may be empty.
        cosines: ``random`` and ``pirl`` → cosines of f(v_I) and g(v_It), of own and other pairs.
        feature_map: None where there are too few images.
        monitor: measures of each epoch as training went; may be empty.
        num_negatives: N, where the loss is InfoNCE: its value at chance is log(N + 1).
        drawn: whether the images are drawn ones and not photos.
    """

    title: str
    results: dict[str, Any]
    loss_curve: list[tuple[int, float]]
    jigsaws: list[Jigsaw] = field(default_factory=list)
    neighbors: list[Neighbors] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)
    num_classes: int | None = None
    num_test: int | None = None
    by_class: dict[str, dict[str, float]] = field(default_factory=dict)
    cosines: dict[str, Cosines] = field(default_factory=dict)
    feature_map: FeatureMap | None = None
    monitor: list[Measures] = field(default_factory=list)
    num_negatives: int | None = None
    drawn: bool = False


def write_report(path: Path, report: Report) -> None:
    """Write the page, whole or not at all; its folder is made if need be.

    Args:
        path: the HTML file to write, replaced if it exists.
        report: what it shows.

    Raises:
        ValueError: for a result that is missing, an empty loss curve, a picture that is not uint8
            (H, W, 3), or a jigsaw without nine patches of one size.
    """
    folder = FileSystemLoader(Path(__file__).parent)
    pages = Environment(loader=folder, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    settings = {name: value for name, value in report.settings.items() if name != "command"}
    level = math.log(report.num_negatives + 1) if report.num_negatives else None
    page = pages.get_template("page.html.j2").render(
        title=report.title,
        run=_run_facts(report.results),
        comparisons=_comparisons(report),
        measured=_measured(report.results),
        chance=100 / report.num_classes if report.num_classes else None,
        num_test=report.num_test,
        loss=_loss_facts(report.loss_curve, level),
        loss_svgs=[loss_curve_svg(report.loss_curve, size, level) for size in ("wide", "narrow")],
        monitor=monitor_facts(report.monitor),
        cosines=_cosine_facts(report.cosines),
        jigsaws=[
            {"original": png_uri(original), "view": png_uri(view), "patches": png_uri(grid)}
            for original, view, patches in report.jigsaws
            for grid in [patch_grid(patches)]
        ],
        word="Image" if report.drawn else "Photo",
        neighbors=[_neighbor_row(sample) for sample in report.neighbors],
        classes=_class_rows(report.by_class),
        map=_map_facts(report.feature_map),
        settings=settings,
        command=report.settings.get("command"),
    )
    write_text(Path(path), page)


def _comparisons(report: Report) -> list[dict[str, object]]:
    """The metrics that both networks have; none of them when the images had no labels."""
    before, after = (report.results.get(name) or {} for name in ("random", "pirl"))
    found = []
    for key, label in _METRICS.items():
        if before.get(key) is None or after.get(key) is None:
            continue
        random, pirl = float(before[key]), float(after[key])
        if not (0 <= random <= 100 and 0 <= pirl <= 100):
            raise ValueError(
                f"{key} is {random} (random) and {pirl} (pirl), expected percents from 0 to 100"
            )
        rows = [
            {"name": name, "value": value, "error": _error(value, report.num_test)}
            for name, value in (("Random", random), ("PIRL", pirl))
        ]
        found.append({"label": label, "rows": rows, "gain": pirl - random})
    return found


def _error(percent: float, images: int | None) -> float | None:
    """Half of the 95 % interval of a share of so many images, in points (normal approximation)."""
    if not images:
        return None
    share = percent / 100
    return 196 * math.sqrt(share * (1 - share) / images)


def _measured(results: dict[str, Any]) -> str:
    """Names the accuracies that are there, "pirl knn_top1" for one; "" when there are none."""
    there = [(name, key) for name in ("random", "pirl") for key in _METRICS]
    return ", ".join(
        f"{name} {key}" for name, key in there if (results.get(name) or {}).get(key) is not None
    )


def _run_facts(results: dict[str, Any]) -> dict[str, str]:
    missing = [
        name for name in ("seed", "epochs", "images_per_s", "seconds") if name not in results
    ]
    if missing:
        raise ValueError(
            f"results lack {missing}, found {sorted(results)}: "
            "give what the pre-training run printed"
        )
    minutes, seconds = divmod(round(results["seconds"]), 60)
    facts = {
        "Seed": str(results["seed"]),
        "Epochs": str(results["epochs"]),
        "Time": f"{minutes} min {seconds} s" if minutes else f"{seconds} s",
    }
    if results["images_per_s"]:
        facts["Speed"] = f"{results['images_per_s']:,.0f} images/s"
    return facts


def _loss_facts(curve: list[tuple[int, float]], level: float | None) -> dict[str, object]:
    if not curve:
        raise ValueError(
            "the loss curve is empty, expected at least one (iteration, loss): "
            "log the loss at least once"
        )
    losses = np.array([loss for _, loss in curve], dtype=float)
    lost = int((~np.isfinite(losses)).sum())
    mean = smoothed(losses) if len(curve) > 60 else losses
    finite = mean[np.isfinite(mean)]
    first = losses[0]
    peak = finite.max() if len(finite) else math.nan
    return {
        "first": f"{first:.2f}",
        "last": f"{finite[-1] if len(finite) else math.nan:.2f}",
        "peak": f"{peak:.2f}",
        "smoothed": len(curve) > 60,
        "rises": bool(peak > first + 0.05 * abs(first)),
        "level": None if level is None else f"{level:.2f}",
        "iterations": f"{curve[-1][0]:,}",
        "lost": str(lost) if lost else "",
    }


def _cosine_facts(cosines: dict[str, Cosines]) -> dict[str, object] | None:
    if not cosines:
        return None
    titles = {"random": "Before training", "pirl": "After training"}
    named = {titles[name]: pair for name, pair in cosines.items()}
    means = {title: [float(np.mean(part)) for part in pair] for title, pair in named.items()}
    said = "; ".join(
        f"{title.lower()} {signed(own)} of an image and its own jigsaw, {signed(other)} of "
        f"different images"
        for title, (own, other) in means.items()
    )
    return {"svgs": [cosines_svg(named, size) for size in ("wide", "narrow")], "means": said}


def _neighbor_row(sample: Neighbors) -> dict[str, object]:
    sides = []
    for name, found in (("PIRL", sample.pirl), ("Random", sample.random)):
        labelled = bool(sample.query_class)
        verdicts = [
            ("same" if label == sample.query_class else "other") if labelled else "unknown"
            for _, label in found
        ]
        pictures = [
            {"src": png_uri(picture), "label": label, "verdict": verdict}
            for (picture, label), verdict in zip(found, verdicts, strict=True)
        ]
        sides.append({"name": name, "pictures": pictures, "same": verdicts.count("same")})
    return {"query": png_uri(sample.query), "label": sample.query_class, "sides": sides}


class _ClassRow(TypedDict):
    label: str
    bars: list[tuple[str, float]]  # network and its kNN top-1, percent


def _class_rows(by_class: dict[str, dict[str, float]]) -> list[_ClassRow]:
    """A row for each class, the one that gained most first."""
    if not by_class:
        return []
    rows: list[_ClassRow] = [
        {"label": label, "bars": [(_NETWORKS[n], by_class[n][label]) for n in ("random", "pirl")]}
        for label in by_class["pirl"]
    ]
    return sorted(rows, key=lambda row: row["bars"][0][1] - row["bars"][1][1])


def _map_facts(found: FeatureMap | None) -> dict[str, object] | None:
    if found is None:
        return None
    colors = ["#{:02x}{:02x}{:02x}".format(*color) for color in PALETTE]
    legend = list(zip(found.classes, colors, strict=False)) if found.classes else []
    more = max(0, len(found.classes) - len(colors))
    return {"src": png_uri(found.picture), "legend": legend, "more": more, "count": found.count}
