"""The quickstart's report: the outcome, plots, network inputs and a map of the images."""

from __future__ import annotations

import datetime
import importlib.metadata
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from torchvision.utils import make_grid

from pirl_plugin.evaluation.image_map import draw_map
from pirl_plugin.evaluation.measures import LINE_KEY
from pirl_plugin.evaluation.next_commands import next_commands, program_name
from pirl_plugin.evaluation.page import Accuracy, write_page
from pirl_plugin.evaluation.pictures import PageImages, data_url
from pirl_plugin.images.source import evenly_spaced
from pirl_plugin.quickstart.evaluate import Evaluated
from pirl_plugin.quickstart.images import Data
from pirl_plugin.quickstart.methods import METHODS
from pirl_plugin.system.files import read_json_lines
from pirl_plugin.views.base import Views
from pirl_plugin.views.pixels import image_generator

ACCURACIES = {"knn_top1": "kNN", "linear_top1": "Linear classifier"}
"""Names of accuracies in ``results.json`` → titles."""

_VIEWS = {"images": "Image view", "patches": "Patches", "transformed": "Rotated view"}
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
        **summarize_log(read_json_lines(out / "pretrain" / "stdout.json")),
        samples=_samples(evaluated.images, results["seed"], method.views),
        images=evaluated.images,
        map=draw_map(evaluated.images, evaluated.features),
        **describe_accuracies(results, evaluated),
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


def describe_accuracies(results: Mapping[str, Any], evaluated: Evaluated) -> dict[str, Any]:
    """Return the page's charts, features, gains and outcome; nothing for unlabeled images."""
    if evaluated.comparison is None:
        return {}
    layers, measured = evaluated.comparison
    count = len(measured.test_labels)
    name = METHODS[results["method"]].name
    charts = {}
    for key, title in ACCURACIES.items():
        random = Accuracy("Random", results["random"][key], count, is_reference=True)
        charts[title] = [random, Accuracy(name, results["pirl"][key], count)]
    gains = {title: results["gain"][key] for key, title in ACCURACIES.items()}
    return {
        "charts": charts | layers.chart(),
        "measured": measured,
        "gains": gains,
        "has_learned": has_learned(gains.values()),
    }


def has_learned(gains: Iterable[Sequence[float]]) -> bool:
    """Return whether an accuracy rose, and none fell, by more than chance.

    Args:
        gains: for each accuracy, the gain over random weights, and half the width of its 95 %
            interval, in points.

    Example:
        >>> has_learned([(7.0, 7.5), (15.5, 4.9)])
        True
    """
    is_gain = {gain > 0 for gain, error in gains if abs(gain) > error}
    return is_gain == {True}


def summarize_log(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what the page plots from the run's log.

    Returns:
        ``losses``, the mean of the logged losses in each of the ``epochs``; and ``measures``, by
        name, at ``measured_epochs``.
    """
    losses: dict[int, list[float]] = {}
    measures = {}
    for line in lines:  # a resumed run may have logged an epoch twice
        epoch = int(line["ep"]) + 1
        losses.setdefault(epoch, []).append(float(line["loss"]))
        if LINE_KEY in line:
            measures[epoch] = line[LINE_KEY]
    return {
        "epochs": [*losses],
        "losses": [mean(logged) for logged in losses.values()],
        "measured_epochs": [*measures],
        "measures": [*measures.values()],
    }


def _samples(images: PageImages, seed: int, views: Views) -> list[dict[str, str]]:
    """Return network inputs for a few images: file name or title → picture of image or view."""
    samples = []
    for number in evenly_spaced(len(images.rows), 3):
        pixels, _ = images.source[images.rows[number]]
        drawn = views(pixels, image_generator(seed, 0, number))
        sample = {images.name(number): data_url(images.display.colors(pixels))}
        for key, view in drawn.items():
            picture = make_grid(view, 3, padding=1, pad_value=255) if view.ndim == 4 else view
            sample[_VIEWS[key]] = data_url(images.display.colors(picture))
        samples.append(sample)
    return samples
