"""A page that shows what a pre-training run learnt: one HTML file, nothing loaded from outside.

Pictures are embedded as PNG, the loss curve as SVG whose colours follow the page's light or dark
mode, and the words around them are in `report.html.j2`.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from pirl_plugin.evaluation.report_figures import Picture, loss_curve_svg, patch_grid, png_uri

Jigsaw = tuple[Picture, Picture, list[Picture]]
"""An original, its image view, and its nine patches in the order the network got them."""
Neighbors = tuple[Picture, list[Picture], list[bool], list[Picture], list[bool]]
"""A query; PIRL's neighbours and whether each is of the query's class; the same for random."""

_METRICS = {"linear_top1": "Linear probe", "knn_top1": "Nearest neighbours (kNN)"}


@dataclass(frozen=True)
class Report:
    """What the page shows.

    Attributes:
        title: the heading.
        results: `{"random": {"linear_top1": percent, "knn_top1": percent}, "pirl": {the same},
            "seed": int, "epochs": int, "images_per_s": float, "seconds": float}`. Accuracies, or
            `random` and `pirl` whole, may be None or missing: the images had no labels.
        loss_curve: (iteration, loss), at least one; a loss that is not finite leaves a gap.
        jigsaws: samples of what the network got to see; may be empty.
        neighbors: samples of nearest neighbours; may be empty. The lists of booleans are empty when
            the images have no labels.
        settings: name to value, shown as a table. The value of "command", where there is one, is
            shown as the command that makes the page again.
    """

    title: str
    results: dict[str, Any]
    loss_curve: list[tuple[int, float]]
    jigsaws: list[Jigsaw] = field(default_factory=list)
    neighbors: list[Neighbors] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)


def write_report(path: Path, report: Report) -> None:
    """Writes the page, whole or not at all; its folder is made if need be.

    Args:
        path: the HTML file to write, replaced if it exists.
        report: what it shows.

    Raises:
        ValueError: for a result that is missing, an empty loss curve, a picture that is not uint8
            (H, W, 3), a jigsaw without nine patches of one size, or verdicts that do not match
            their neighbours in number.
    """
    folder = FileSystemLoader(Path(__file__).parent)
    pages = Environment(loader=folder, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    settings = {name: value for name, value in report.settings.items() if name != "command"}
    page = pages.get_template("report.html.j2").render(
        title=report.title,
        run=_run_facts(report.results),
        comparisons=_comparisons(report.results),
        measured=_measured(report.results),
        loss=_loss_facts(report.loss_curve),
        loss_svg=loss_curve_svg(report.loss_curve),
        jigsaws=[
            {"original": png_uri(original), "view": png_uri(view), "patches": png_uri(grid)}
            for original, view, patches in report.jigsaws
            for grid in [patch_grid(patches)]
        ],
        neighbors=[_neighbor_row(*sample) for sample in report.neighbors],
        settings=settings,
        command=report.settings.get("command"),
    )
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(page, encoding="utf-8")
    draft.replace(path)


def _comparisons(results: dict[str, Any]) -> list[dict[str, Any]]:
    """The metrics that both networks have; none of them when the images had no labels."""
    before, after = (results.get(name) or {} for name in ("random", "pirl"))
    found = []
    for key, label in _METRICS.items():
        if before.get(key) is None or after.get(key) is None:
            continue
        random, pirl = float(before[key]), float(after[key])
        if not (0 <= random <= 100 and 0 <= pirl <= 100):
            raise ValueError(
                f"{key} is {random} (random) and {pirl} (pirl), expected percents from 0 to 100"
            )
        found.append({"label": label, "random": random, "pirl": pirl, "gain": pirl - random})
    return found


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
    return {
        "Seed": str(results["seed"]),
        "Epochs": str(results["epochs"]),
        "Time": f"{minutes} min {seconds} s" if minutes else f"{seconds} s",
        "Speed": f"{results['images_per_s']:,.0f} images/s",
    }


def _loss_facts(curve: list[tuple[int, float]]) -> dict[str, str]:
    if not curve:
        raise ValueError(
            "the loss curve is empty, expected at least one (iteration, loss): "
            "log the loss at least once"
        )
    lost = sum(not math.isfinite(loss) for _, loss in curve)
    return {
        "first": f"{curve[0][1]:.2f}",
        "last": f"{curve[-1][1]:.2f}",
        "iterations": f"{curve[-1][0]:,}",
        "lost": str(lost) if lost else "",
    }


def _neighbor_row(
    query: Picture,
    pirl: list[Picture],
    same_pirl: list[bool],
    random: list[Picture],
    same_random: list[bool],
) -> dict[str, Any]:
    sides = []
    for name, pictures, same in (("PIRL", pirl, same_pirl), ("Random", random, same_random)):
        if same and len(same) != len(pictures):
            raise ValueError(
                f"{name}: {len(pictures)} neighbours and {len(same)} same-class verdicts; expected "
                "one verdict for each neighbour, or none when there are no labels"
            )
        verdicts = ["same" if yes else "other" for yes in same] or ["unknown"] * len(pictures)
        pairs = zip(map(png_uri, pictures), verdicts, strict=True)
        sides.append({"name": name, "pictures": list(pairs), "same": sum(map(bool, same))})
    return {"query": png_uri(query), "sides": sides}
