"""The quickstart's report: the outcome, plots, network inputs and nearest neighbors."""

from __future__ import annotations

import datetime
import importlib.metadata
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torchvision.utils import make_grid

from pirl_plugin.evaluation.image_map import draw_map
from pirl_plugin.evaluation.knn import chance_top1, find_neighbors, same_class_share
from pirl_plugin.evaluation.measures import LINE_KEY
from pirl_plugin.evaluation.next_commands import next_commands, program_name
from pirl_plugin.evaluation.page import Accuracy, write_page
from pirl_plugin.evaluation.pictures import data_url
from pirl_plugin.images.source import evenly_spaced
from pirl_plugin.quickstart.images import Data, Evaluated
from pirl_plugin.quickstart.methods import METHODS
from pirl_plugin.system.files import read_json_lines
from pirl_plugin.views.base import Views
from pirl_plugin.views.pixels import image_generator

_ACCURACIES = {"knn_top1": "kNN", "linear_top1": "Linear classifier"}
_POINTS = 60  # of the plotted loss
_QUERIES = 2
_NEIGHBORS = 6
_PACKAGES = ("pirl_plugin", "torch", "vissl")


def write_report(
    out: Path, data: Data, checkpoint: Path, results: dict[str, Any], evaluated: Evaluated
) -> None:
    """Write ``report.html`` into ``out`` from a finished run.

    Args:
        out: the run's folder.
        data: the images.
        checkpoint: the pre-trained network.
        results: as in ``results.json``.
        evaluated: the images with their features.
    """
    method = METHODS[results["method"]]
    machine = "" if torch.cuda.is_available() else " +config/pirl/machines=cpu_small"
    write_page(
        out / "report.html",
        Path(__file__).with_name("quickstart.html.j2"),
        title=f"{method.name} quickstart",
        data=data,
        method=method,
        results=results,
        is_labeled=evaluated.labels is not None,
        **summarize_log(read_json_lines(out / "pretrain" / "stdout.json"), results["epochs"]),
        samples=_samples(evaluated, results["seed"], method.views),
        images=evaluated.images,
        map=draw_map(evaluated.images, evaluated.features["pirl"]),
        **compare_neighbors(evaluated),
        **accuracies(results, evaluated),
        commands={
            "The same on your images": f"{program_name()} quickstart --data DIR --out runs/mine",
            "Train a larger network for longer, on these or other images": (
                f"{program_name()} train config=pretrain/pirl/own_images{machine} "
                f"'config.DATA.TRAIN.DATA_PATHS=[DIR]'"
            ),
            **next_commands(checkpoint),
        },
        versions=[f"{name} {importlib.metadata.version(name)}" for name in _PACKAGES],
        today=datetime.date.today().isoformat(),
    )


def accuracies(results: dict[str, Any], evaluated: Evaluated) -> dict[str, Any]:
    """Return the page's charts, chance and outcome; nothing if the images are unlabeled."""
    if evaluated.labels is None or evaluated.layers is None:
        return {}
    train_labels, test_labels = evaluated.labels.tensor_split([evaluated.num_train])
    method = METHODS[results["method"]].name
    charts = {}
    for key, title in _ACCURACIES.items():
        random = Accuracy("Random", results["random"][key], len(test_labels), is_reference=True)
        charts[title] = [random, Accuracy(method, results["pirl"][key], len(test_labels))]
    return {
        "charts": charts | evaluated.layers.chart(),
        "chance": chance_top1(train_labels, test_labels),
        "gains": {title: results["gain"][key] for key, title in _ACCURACIES.items()},
        "outcome": outcome(results["gain"].values()),
    }


def outcome(gains: Iterable[Sequence[float]]) -> str:
    """Decide from all accuracies whether a method learned: ``good``, ``bad``, ``mixed``, ``open``.

    Args:
        gains: for each accuracy, the gain over random weights, and half the width of its 95 %
            interval, in points.

    Example:
        >>> outcome([(7.0, 7.5), (15.5, 4.9)])
        'good'
    """
    is_gain = {gain > 0 for gain, error in gains if abs(gain) > error}
    if len(is_gain) != 1:
        return "mixed" if is_gain else "open"
    return "good" if True in is_gain else "bad"


def compare_neighbors(evaluated: Evaluated) -> dict[str, Any]:
    """Find the nearest training images for test images or, without labels, for training images.

    Returns:
        ``nearest``: checkpoint name → int64 ``(M, k)``, numbers of the images nearest to each.
        ``same_class``: the percentage of these with the same class, for each checkpoint.
        ``queries``: number of an image to show → its row in ``nearest``.
    """
    labels = evaluated.labels
    first_query = 0 if labels is None else evaluated.num_train
    nearest = {}
    same_class = []
    for name, features in evaluated.features.items():
        gallery = features[: evaluated.num_train]
        queries = features[first_query:]
        rows, _ = find_neighbors(queries, gallery, _NEIGHBORS, leave_one_out=labels is None)
        nearest[name] = rows
        if labels is not None:
            same_class.append(same_class_share(rows, labels, labels[first_query:]))
    num_queries = len(evaluated.images.rows) - first_query
    rows_to_show = evenly_spaced(num_queries, _QUERIES)
    return {
        "nearest": nearest,
        "same_class": same_class,
        "queries": {first_query + row: row for row in rows_to_show},
    }


def summarize_log(lines: Sequence[Mapping[str, Any]], epochs: int) -> dict[str, Any]:
    """Return what the page plots from the run's log.

    Args:
        lines: the log.
        epochs: number of training epochs.

    Returns:
        ``losses``, each a mean over neighboring steps, at ``loss_epochs``; and ``measures``, by
        name, at ``measured_epochs``.
    """
    loss_of_step = {int(line["iter"]): float(line["loss"]) for line in lines}
    losses = np.array(sorted(loss_of_step.items()))  # (K, 2): step, loss
    parts = np.array_split(losses, min(_POINTS, len(losses)))
    steps, means = np.array([part.mean(axis=0) for part in parts]).T
    epoch_of_step = steps * epochs / max(losses[-1, 0], 1)  # there may be only step 0
    # A resumed run may have logged an epoch twice.
    measures = {int(line["ep"]) + 1: line[LINE_KEY] for line in lines if LINE_KEY in line}
    return {
        "loss_epochs": epoch_of_step.tolist(),
        "losses": means.tolist(),
        "measured_epochs": [*measures],
        "measures": [*measures.values()],
    }


def _samples(evaluated: Evaluated, seed: int, views: Views) -> list[dict[str, str]]:
    """Return network inputs for a few images: file name or title → picture of image or view."""
    images = evaluated.images
    samples = []
    for number in evenly_spaced(evaluated.num_train, 3):
        pixels, _ = images.source[images.rows[number]]
        drawn = views(pixels, image_generator(seed, 0, number))
        pictures = {images.name(number): pixels, "Image view": drawn["images"]}
        if "patches" in drawn:
            pictures["Patches"] = make_grid(drawn["patches"], 3, padding=1, pad_value=255)
        if "transformed" in drawn:
            pictures["Rotated view"] = drawn["transformed"]
        samples.append(
            {title: data_url(images.display.colors(image)) for title, image in pictures.items()}
        )
    return samples
