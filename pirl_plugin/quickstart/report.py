"""The quickstart's report: one HTML file that loads nothing from outside.

Pictures are embedded as PNG and plots as SVG, small enough for a phone. ``report.html.j2`` has the
text. This module chooses the parts that depend on the outcome.
"""

from __future__ import annotations

import base64
import datetime
import importlib.metadata
import io
import math
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from PIL import Image
from torch import Tensor
from torch.nn.functional import pad

from pirl_plugin.checkpoints.training_run import RUN_CONFIG, read_config
from pirl_plugin.console import next_commands
from pirl_plugin.evaluation.features import centre_crop, evenly_spaced
from pirl_plugin.evaluation.knn import find_neighbors
from pirl_plugin.evaluation.measures import LINE_KEY
from pirl_plugin.evaluation.pretext_model import load_pretext_model
from pirl_plugin.files import read_json_lines, write_text
from pirl_plugin.quickstart.run import Data, Split
from pirl_plugin.views.pixels import image_generator

_SHOWN, _NEIGHBORS, _PICTURE = 6, 6, 112
_BLUE, _GREY = "#2457c5", "#8b929b"
_MEASURES = {  # measure of the memory bank: title, and meaning of the dashed line
    "knn_top1": ("kNN in the memory bank, %", "most frequent class"),
    "effective_rank": ("Effective rank of the memory bank", "random rows, near the maximum"),
    "cos_f_m": ("Cosine of f(image) and its bank row", "rows of other images"),
    "cos_g_m": ("Cosine of g(jigsaw) and the image's bank row", "rows of other images"),
}


def write_report(
    out: Path,
    data: Data,
    checkpoints: dict[str, Path],
    results: dict[str, Any],
    train: Split,
    test: Split | None,
) -> None:
    """Write ``report.html`` into ``out`` from a finished run.

    Args:
        out: the run's folder.
        data: the images.
        checkpoints: the checkpoints ``random`` and ``pirl``.
        results: as in ``results.json``.
        train: features of the training images.
        test: features of the test images, if there are labels.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    lines = read_json_lines(out / "pretrain" / "stdout.json")
    losses = sorted({int(e["iter"]): float(e["loss"]) for e in lines}.items())
    measures = {int(e["ep"]) + 1: e[LINE_KEY] for e in lines if LINE_KEY in e}
    context = {
        "results": results,
        "data": data,
        "config": read_config(out / "pretrain" / RUN_CONFIG),
        "accuracy": accuracy_facts(results, Counter(test.classes)) if test else None,
        "loss": _ends([loss for _, loss in losses]),
        "plots": _plots(losses, results["epochs"], measures),
        "jigsaws": _jigsaws(train, results["seed"], checkpoints["pirl"]),
        "neighbors": _neighbors(train, test),
        "machine": "" if torch.cuda.is_available() else " +config/pirl/machines=cpu",
        "commands": next_commands(checkpoints["pirl"], data.train),
        "out": out,
        "versions": {p: importlib.metadata.version(p) for p in ("pirl_plugin", "torch", "vissl")},
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
    }
    loader = FileSystemLoader(Path(__file__).parent)
    pages = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    write_text(out / "report.html", pages.get_template("report.html.j2").render(context))


def accuracy_facts(results: dict[str, Any], classes: Counter[str]) -> dict[str, Any]:
    """Return accuracies, their 95 % intervals, and the verdict on kNN's gain.

    The gain's interval takes the two shares as independent (normal approximation).

    Args:
        results: as in ``results.json``.
        classes: test images of each class; the most frequent gives the chance level.

    Example:
        >>> same = {"knn_top1": 30.0, "linear_top1": 40.0}
        >>> accuracy_facts({"random": same, "pirl": same}, Counter("aab"))["kind"]
        'open'
    """
    count, rows = classes.total(), []
    for key, title in (("knn_top1", "kNN"), ("linear_top1", "Linear classifier")):
        both = {name: results[name][key] for name in ("random", "pirl")}
        variance = [p / 100 * (1 - p / 100) / count for p in both.values()]
        errors = [196 * math.sqrt(v) for v in (*variance, sum(variance))]
        rows.append({"title": title, **both, "errors": errors})
    gain, error = rows[0]["pirl"] - rows[0]["random"], rows[0]["errors"][2]
    kind = "good" if gain > error else "bad" if gain < -error else "open"
    found = f"{gain:+.1f} ± {error:.1f} points".replace("-", "−")
    chance = 100 * max(classes.values()) / count
    return {"rows": rows, "kind": kind, "gain": found, "chance": chance, "count": count}


def _ends(values: list[float]) -> tuple[float, float]:
    """Return the means of the first and of the last tenth."""
    part = max(1, len(values) // 10)
    return sum(values[:part]) / part, sum(values[-part:]) / part


def _plots(
    losses: Sequence[tuple[int, float]],
    epochs: int,
    measures: dict[int, dict[str, dict[str, float]]],
) -> list[str]:
    """Plot the loss, and each measure that every measured epoch has."""
    steps, values = np.array(losses).T
    plots, measured = [_plot("Loss", steps * epochs / steps[-1], values)], sorted(measures)
    for name, (title, dashed) in _MEASURES.items():
        if measured and all(name in measures[epoch] for epoch in measured):
            value, chance = (
                [measures[epoch][name][key] for epoch in measured] for key in ("value", "chance")
            )
            plots.append(_plot(title, measured, value, chance, dashed))
    return plots


def _plot(
    title: str,
    epochs: ArrayLike,
    values: ArrayLike,
    chance: ArrayLike | None = None,
    dashed: str = "",
) -> str:
    """Return a plot, 4.2 inches wide, as an ``<svg>`` element with text as text."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure, stream = Figure(figsize=(4.2, 2.6), layout="constrained"), io.StringIO()
    axes = figure.subplots()
    axes.set_title(title, fontsize=10, loc="left")
    axes.set(xlabel="epoch")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.plot(epochs, values, color=_BLUE)
    if chance is not None:
        axes.plot(epochs, chance, color=_GREY, ls="--", marker=".", label=dashed)
        axes.legend(frameon=False, fontsize=8)
    axes.set_xlim(left=0)
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": title}):
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    svg = re.sub(r"<metadata>.*?</metadata>", "", stream.getvalue(), flags=re.DOTALL)
    return svg[svg.index("<svg") :].replace("<svg ", f'<svg role="img" aria-label="{title}" ', 1)


def _jigsaws(train: Split, seed: int, checkpoint: Path) -> list[dict[str, str]]:
    """Return the network's input for a few images: the image, its view, its shuffled patches."""
    views, samples = load_pretext_model(checkpoint).views, []
    for row in evenly_spaced(len(train.rows), 3):
        pixels = train.source[train.rows[row]][0]
        drawn = views(pixels, image_generator(seed, 0, row))
        grid = pad(drawn["patches"], (1, 1, 1, 1), value=255).unflatten(0, (3, 3))
        grid = grid.permute(2, 0, 3, 1, 4).flatten(3, 4).flatten(1, 2)  # (3, 3 h, 3 w)
        pictures = {"image": pixels, "view": drawn["images"], "patches": grid}
        samples.append({name: _png(picture) for name, picture in pictures.items()})
    return samples


def _neighbors(train: Split, test: Split | None) -> list[dict[str, Any]]:
    """Return a few images, each with its nearest neighbours by both networks."""
    query, found = test or train, []
    for row in evenly_spaced(len(query.rows), _SHOWN):
        sample: dict[str, Any] = {"query": _shown(query, row)}
        for name in ("pirl", "random"):
            # Without test images, the first neighbour is the image itself.
            asked, first = query.features[name][row : row + 1], int(test is None)
            near, _ = find_neighbors(asked, train.features[name], _NEIGHBORS + first)
            sample[name] = [_shown(train, neighbor) for neighbor in near[0, first:].tolist()]
        found.append(sample)
    return found


def _shown(split: Split, row: int) -> dict[str, str]:
    picture = centre_crop(split.source[split.rows[row]][0], _PICTURE)
    return {"image": _png(picture), "label": split.classes[row]}


def _png(image: Tensor) -> str:
    """Return the ``data:`` address of a uint8 (3, H, W) picture."""
    stream = io.BytesIO()
    Image.fromarray(image.permute(1, 2, 0).contiguous().numpy()).save(stream, "PNG")
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()
