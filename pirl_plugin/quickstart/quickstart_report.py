"""The quickstart's report: plots, pictures, and the parts that depend on the outcome.

``report.html.j2`` has the text. Plots are embedded as SVG, small enough for a phone.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import io
import math
import re
import shlex
from collections import Counter
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn.functional import pad

from pirl_plugin.checkpoints.training_run import RUN_CONFIG, read_config
from pirl_plugin.evaluation.features import evenly_spaced
from pirl_plugin.evaluation.knn import find_neighbors, same_class_share
from pirl_plugin.evaluation.measures import LINE_KEY
from pirl_plugin.evaluation.page import picture, small_picture, write_page
from pirl_plugin.evaluation.report import Accuracy
from pirl_plugin.evaluation.training_views import training_views
from pirl_plugin.quickstart.images import Data, Split
from pirl_plugin.system.console import next_commands, program_name
from pirl_plugin.system.files import read_json_lines
from pirl_plugin.system.host_config import quoted
from pirl_plugin.views.pixels import image_generator

_NUM_QUERIES = 6
_NUM_NEIGHBORS = 6
_BLUE = "#2457c5"
_PALE_BLUE = "#b9c9ee"
_GREY = "#8b929b"
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
    lines = read_json_lines(out / "pretrain" / "stdout.json")
    loss_of_step = {int(line["iter"]): float(line["loss"]) for line in lines}
    losses = np.array(sorted(loss_of_step.items()))  # (K, 2): step, loss
    measures = {int(line["ep"]) + 1: line[LINE_KEY] for line in lines if LINE_KEY in line}
    nearest = nearest_rows(train, test)
    values = {
        "title": "PIRL quickstart",
        "results": results,
        "data": data,
        "config": read_config(out / "pretrain" / RUN_CONFIG),
        "accuracy": accuracy_facts(results, Counter(test.classes)) if test else None,
        "loss": _ends(losses[:, 1]),
        "plots": _plots(losses, results["epochs"], measures),
        "jigsaws": _jigsaws(train, results["seed"], checkpoints["pirl"]),
        "queries": neighbor_queries(train, test, nearest),
        "same_class": same_class_shares(train, test, nearest) if test else None,
        "num_neighbors": nearest["pirl"].shape[1],
        "commands": _commands(out, data, checkpoints["pirl"]),
        "versions": {
            package: importlib.metadata.version(package)
            for package in ("pirl_plugin", "torch", "vissl")
        },
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
    }
    write_page(out / "report.html", Path(__file__).with_name("report.html.j2"), **values)


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
    count = classes.total()
    rows: list[dict[str, Any]] = []
    for key, title in (("knn_top1", "kNN"), ("linear_top1", "Linear classifier")):
        random = results["random"][key]
        pirl = results["pirl"][key]
        errors = [Accuracy(title, percent, count).error for percent in (random, pirl)]
        rows.append({"title": title, "random": random, "pirl": pirl, "errors": errors})

    knn = rows[0]
    gain = knn["pirl"] - knn["random"]
    error = math.hypot(*knn["errors"])  # of the difference: the variances add up
    if gain > error:
        kind = "good"
    elif gain < -error:
        kind = "bad"
    else:
        kind = "open"
    return {
        "rows": rows,
        "kind": kind,
        "gain": f"{gain:+.1f} ± {error:.1f} points".replace("-", "−"),
        "chance": 100 * max(classes.values()) / count,
        "count": count,
    }


def nearest_rows(train: Split, test: Split | None) -> dict[str, Tensor]:
    """Return each network's nearest training images of all queries, int64 (M, 6).

    Args:
        train: the images among which neighbours are searched.
        test: the M queries; None: the training images, each without itself.
    """
    queries = test or train
    nearest = {}
    for name, features in queries.features.items():
        gallery = train.features[name]
        rows, _ = find_neighbors(features, gallery, _NUM_NEIGHBORS, leave_one_out=test is None)
        nearest[name] = rows
    return nearest


def same_class_shares(train: Split, test: Split, nearest: dict[str, Tensor]) -> dict[str, float]:
    """Return how many of each network's neighbours have the class of their query, percent.

    Args:
        train: the images among which neighbours were searched.
        test: the queries.
        nearest: of :func:`nearest_rows`.
    """
    return {
        name: same_class_share(rows, train.labels, test.labels) for name, rows in nearest.items()
    }


def neighbor_queries(
    train: Split, test: Split | None, nearest: dict[str, Tensor]
) -> list[dict[str, Any]]:
    """Return a few images with their nearest neighbours, those of the best query first.

    Args:
        train: the images among which neighbours were searched.
        test: the images to choose queries from; None: the training images, which have no classes.
        nearest: of :func:`nearest_rows`.

    Returns:
        For each query, ``query`` and each network's list of neighbours: dictionaries of ``image``
        and ``label``; and ``num_same``, network → number of neighbours of the query's class.
    """
    split = test or train
    train_classes = train.classes
    queries: list[dict[str, Any]] = []
    for row in evenly_spaced(len(split.rows), _NUM_QUERIES):
        label = split.classes[row]
        query: dict[str, Any] = {"query": _shown(split, row), "num_same": {}}
        for name, rows in nearest.items():
            neighbors = rows[row].tolist()
            query[name] = [_shown(train, neighbor) for neighbor in neighbors]
            query["num_same"][name] = sum(train_classes[index] == label for index in neighbors)
        queries.append(query)
    return sorted(queries, key=lambda query: -query["num_same"]["pirl"])


def _commands(out: Path, data: Data, checkpoint: Path) -> dict[str, str]:
    """Return the next steps: purpose → command."""
    program = program_name()
    own_images = f"{program} train config=pretrain/pirl/own_images"
    if not torch.cuda.is_available():
        own_images += " +config/pirl/machines=cpu +config/pirl/models=resnet18"
    if data.train.is_relative_to(out):  # sample images
        other_run = out.with_name(f"{out.name}_own")
        first = {
            "The same on your own images": f"{program} quickstart --data DIR --out "
            + shlex.quote(str(other_run)),
            "A longer training of a larger network on your own images": f"{own_images} "
            "'config.DATA.TRAIN.DATA_PATHS=[DIR]'",
        }
    else:
        paths = shlex.quote(f"config.DATA.TRAIN.DATA_PATHS=[{quoted(data.train)}]")
        first = {"A longer training of a larger network on these images": f"{own_images} {paths}"}
    return {**first, **next_commands(checkpoint, data.train)}


def _ends(values: NDArray[np.floating]) -> tuple[float, float]:
    """Return the means of the first and of the last tenth."""
    part = max(1, len(values) // 10)
    return float(values[:part].mean()), float(values[-part:].mean())


def _plots(
    losses: NDArray[np.floating], epochs: int, measures: dict[int, dict[str, dict[str, float]]]
) -> list[str]:
    """Plot the loss, and each measure that every measured epoch has.

    Args:
        losses: ``(K, 2)``, step and loss.
        epochs: epochs of the training.
        measures: epoch → name → ``value`` and ``chance``.
    """
    plots = [_plot_loss(losses, epochs)]
    for name in _MEASURES:
        if measures and all(name in of_epoch for of_epoch in measures.values()):
            plots.append(_plot_measure(name, measures))
    return plots


def _plot_loss(losses: NDArray[np.floating], epochs: int) -> str:
    steps, values = losses.T
    epoch_of_step = steps * epochs / steps[-1]
    figure = _figure("Loss")
    axes = figure.axes[0]
    axes.plot(epoch_of_step, values, color=_PALE_BLUE, lw=1, label="each logged step")
    axes.plot(epoch_of_step, _smoothed(values), color=_BLUE, label="running mean")
    axes.legend(frameon=False, fontsize=8)
    return _svg(figure, "Loss")


def _plot_measure(name: str, measures: dict[int, dict[str, dict[str, float]]]) -> str:
    title, dashed = _MEASURES[name]
    measured_epochs = sorted(measures)
    values = [measures[epoch][name]["value"] for epoch in measured_epochs]
    chance = [measures[epoch][name]["chance"] for epoch in measured_epochs]
    figure = _figure(title)
    axes = figure.axes[0]
    axes.plot(measured_epochs, values, color=_BLUE)
    axes.plot(measured_epochs, chance, color=_GREY, ls="--", marker=".", label=dashed)
    axes.legend(frameon=False, fontsize=8)
    return _svg(figure, title)


def _smoothed(values: ArrayLike) -> NDArray[np.floating]:
    """Return the running mean over a twentieth of the values; the window is shorter at the ends."""
    values = np.asarray(values, float)
    half = len(values) // 40
    windows = [values[max(0, i - half) : i + half + 1] for i in range(len(values))]
    return np.array([window.mean() for window in windows])


def _figure(title: str) -> Figure:
    """Return a figure, 4.2 inches wide, with one pair of axes over epochs."""
    figure = Figure(figsize=(4.2, 2.6), layout="constrained")
    axes = figure.subplots()
    axes.set_title(title, fontsize=10, loc="left")
    axes.set(xlabel="epoch")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def _svg(figure: Figure, title: str) -> str:
    """Return a figure as an ``<svg>`` element with text as text."""
    figure.axes[0].set_xlim(left=0)
    stream = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": title}):
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    svg = re.sub(r"<metadata>.*?</metadata>", "", stream.getvalue(), flags=re.DOTALL)
    return svg[svg.index("<svg") :].replace("<svg ", f'<svg role="img" aria-label="{title}" ', 1)


def _jigsaws(train: Split, seed: int, checkpoint: Path) -> list[dict[str, str]]:
    """Return the network's input for a few images: the image, its view, its shuffled patches."""
    views = training_views(checkpoint)
    samples = []
    for row in evenly_spaced(len(train.rows), 3):
        pixels = train.source[train.rows[row]][0]  # uint8 (3, H, W)
        drawn = views(pixels, image_generator(seed, 0, row))
        patches = pad(drawn["patches"], (1, 1, 1, 1), value=255)  # (9, 3, h, w) with white edges
        grid = patches.unflatten(0, (3, 3)).permute(2, 0, 3, 1, 4)  # (3, 3, h, 3, w)
        pictures = {
            "image": pixels,
            "view": drawn["images"],
            "patches": grid.flatten(3, 4).flatten(1, 2),  # (3, 3 h, 3 w)
        }
        samples.append({name: picture(pixels) for name, pixels in pictures.items()})
    return samples


def _shown(split: Split, row: int) -> dict[str, str]:
    """Return an image's picture and its class."""
    pixels = split.source[split.rows[row]][0]
    return {"image": small_picture(pixels), "label": split.classes[row]}
