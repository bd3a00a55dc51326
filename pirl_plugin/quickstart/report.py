"""The quickstart's report: one HTML file, nothing loaded from outside.

Pictures are embedded as PNG and plots as SVG, each small enough for a phone. The words are in
``report.html.j2``; those that depend on the outcome are chosen here.
"""

from __future__ import annotations

import base64
import datetime
import importlib.metadata
import io
import math
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image
from torch.nn.functional import pad

from pirl_plugin.checkpoints.training_run import RUN_CONFIG, read_config
from pirl_plugin.console import next_commands
from pirl_plugin.evaluation.features import centre_crop, evenly_spaced
from pirl_plugin.evaluation.knn import find_neighbors
from pirl_plugin.evaluation.measures import LINE_KEY
from pirl_plugin.evaluation.pretext_model import load_pretext_model
from pirl_plugin.files import read_json_lines, write_text
from pirl_plugin.images.decode import decode_image
from pirl_plugin.quickstart.run import Data, Split
from pirl_plugin.views.pixels import image_generator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from torch import Tensor

_SHOWN, _NEIGHBORS, _PICTURE = 6, 6, 112
_BLUE, _GREY = "#2457c5", "#8b929b"
_MEASURES = {  # of the memory bank: title, and what the dashed line is
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
        checkpoints: of ``random`` and ``pirl``.
        results: as in ``results.json``.
        train: features of the training images.
        test: features of the test images, where there are labels.
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
        "loss": loss_facts(losses),
        "plots": [_loss_plot(losses, results["epochs"]), *_measure_plots(measures)],
        "jigsaws": _jigsaws(train, results["seed"], checkpoints["pirl"]),
        "neighbors": _neighbors(train, test),
        "commands": _next_commands(data, checkpoints["pirl"], out),
        "versions": {p: importlib.metadata.version(p) for p in ("pirl_plugin", "torch", "vissl")},
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
    }
    loader = FileSystemLoader(Path(__file__).parent)
    pages = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    write_text(out / "report.html", pages.get_template("report.html.j2").render(context))


def accuracy_facts(results: dict[str, Any], classes: Counter[str]) -> dict[str, Any]:
    """Return accuracies, their 95 % intervals, and the verdict that follows from kNN's.

    The gain's interval is that of two independent shares (normal approximation).

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
    found = f"{gain:+.1f} ± {error:.1f} points".replace("-", "−")
    if gain > error:
        kind, verdict = "good", f"PIRL learnt: its features beat random weights by {found} (kNN)."
    elif gain < -error:
        kind, verdict = "bad", f"PIRL's features are worse than random weights: {found} (kNN)."
    else:
        kind = "open"
        verdict = (
            f"This run does not show that PIRL learnt: {found} over random weights (kNN), which "
            "may be chance. Train for more epochs or on more images."
        )
    chance = 100 * max(classes.values()) / count
    return {"rows": rows, "kind": kind, "verdict": verdict, "chance": chance, "count": count}


def loss_facts(losses: Sequence[tuple[int, float]]) -> str:
    """Return how the loss went, in words; the ends are means of a tenth of the curve.

    Example:
        >>> loss_facts([(0, 6.0), (1, 7.0)])
        'The loss rose from 6.00 to 7.00: it does not show learning.'
    """
    values = np.array([loss for _, loss in losses])
    part = max(1, len(values) // 10)
    first, last = values[:part].mean(), values[-part:].mean()
    text = f"from {first:.2f} to {last:.2f}"
    if not np.isfinite(values).all():
        return f"The loss went {text}, through numbers that are not finite: the run diverged."
    if last > first + 0.01:
        return f"The loss rose {text}: it does not show learning."
    return f"The loss fell {text}." if last < first - 0.01 else f"The loss did not change ({text})."


def _next_commands(data: Data, checkpoint: Path, out: Path) -> dict[str, str]:
    """What to do next → a command with this run's paths."""
    own = f"pirl-plugin quickstart --data DIR --out {out}_own"
    longer = "config=pretrain/pirl/own_images config.DATA.TRAIN.DATA_PATHS=[DIR]"
    return {
        "The same on your own images": own,
        "A longer training on your own images": f"pirl-plugin train {longer}",
        **next_commands(checkpoint, data.train),
    }


def _loss_plot(losses: Sequence[tuple[int, float]], epochs: int) -> str:
    axes = _axes("Loss")
    steps, values = np.array(losses).T
    axes.plot(steps * epochs / steps[-1], values, color=_BLUE, lw=1.2)
    return _svg(axes)


def _measure_plots(measures: dict[int, dict[str, dict[str, float]]]) -> list[str]:
    """Plot each measure that every measured epoch has."""
    plots, epochs = [], sorted(measures)
    for name, (title, dashed) in _MEASURES.items():
        if epochs and all(name in measures[epoch] for epoch in epochs):
            axes = _axes(title)
            value, chance = (
                [measures[epoch][name][key] for epoch in epochs] for key in ("value", "chance")
            )
            axes.plot(epochs, value, color=_BLUE, lw=1.8, marker=".")
            axes.plot(epochs, chance, color=_GREY, ls="--", marker=".", label=dashed)
            axes.set_xlim(left=0)
            plots.append(_svg(axes))
    return plots


def _jigsaws(train: Split, seed: int, checkpoint: Path) -> list[dict[str, str]]:
    """Show what the network saw of a few images: the image, its view, its shuffled patches."""
    views, samples = load_pretext_model(checkpoint).views, []
    for row in evenly_spaced(len(train.paths), 3):
        pixels = _pixels(train, row)
        drawn = views(pixels, image_generator(seed, 0, row))
        grid = pad(drawn["patches"], (1, 1, 1, 1), value=255).unflatten(0, (3, 3))
        grid = grid.permute(2, 0, 3, 1, 4).flatten(3, 4).flatten(1, 2)  # (3, 3 h, 3 w)
        pictures = {"image": pixels, "view": drawn["images"], "patches": grid}
        samples.append({name: _png(picture) for name, picture in pictures.items()})
    return samples


def _neighbors(train: Split, test: Split | None) -> list[dict[str, Any]]:
    """Return a few images, each with its nearest neighbours by both networks."""
    query, found = test or train, []
    for row in evenly_spaced(len(query.paths), _SHOWN):
        sample: dict[str, Any] = {"query": _shown(query, row)}
        for name in ("pirl", "random"):
            asked, first = query.features[name][row : row + 1], int(test is None)  # itself is first
            near, _ = find_neighbors(asked, train.features[name], _NEIGHBORS + first)
            sample[name] = [_shown(train, neighbor) for neighbor in near[0, first:].tolist()]
        found.append(sample)
    return found


def _shown(split: Split, row: int) -> dict[str, str]:
    picture = centre_crop(_pixels(split, row), _PICTURE)
    return {"image": _png(picture), "label": split.classes[row]}


def _pixels(split: Split, row: int) -> Tensor:
    return decode_image((split.folder / split.paths[row]).read_bytes())


def _png(image: Tensor) -> str:
    """Return the ``data:`` address of a uint8 (3, H, W) picture."""
    stream = io.BytesIO()
    Image.fromarray(image.permute(1, 2, 0).contiguous().numpy()).save(stream, "PNG")
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()


def _axes(title: str) -> Axes:
    """Return an empty plot over epochs, 4.2 inches wide."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    axes = Figure(figsize=(4.2, 2.6), layout="constrained").subplots()
    axes.set_title(title, fontsize=10, loc="left")
    axes.set_xlabel("epoch")
    axes.spines[["top", "right"]].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    return axes


def _svg(axes: Axes) -> str:
    """Return a plot as an ``<svg>`` element whose words stay text."""
    import matplotlib

    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize=8)
    title, stream = axes.get_title(loc="left"), io.StringIO()
    figure = axes.get_figure(root=True)
    assert figure is not None
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": title}):
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    svg = re.sub(r"<metadata>.*?</metadata>", "", stream.getvalue(), flags=re.DOTALL)
    return svg[svg.index("<svg") :].replace("<svg ", f'<svg role="img" aria-label="{title}" ', 1)
