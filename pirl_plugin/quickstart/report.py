"""The quickstart's report: plots, pictures, and the parts that depend on the outcome."""

from __future__ import annotations

import datetime
import importlib.metadata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torchvision.utils import make_grid

from pirl_plugin.checkpoints.read import RUN_CONFIG, read_config
from pirl_plugin.evaluation import page
from pirl_plugin.evaluation.image_map import draw_map, take_images
from pirl_plugin.evaluation.knn import chance_top1, find_neighbors
from pirl_plugin.evaluation.measures import LINE_KEY
from pirl_plugin.evaluation.next_commands import next_commands, program_name
from pirl_plugin.evaluation.pictures import ShownImages, data_url
from pirl_plugin.images.source import evenly_spaced
from pirl_plugin.quickstart.images import Data, Evaluated
from pirl_plugin.quickstart.methods import METHODS
from pirl_plugin.system.files import read_json_lines
from pirl_plugin.system.text import counted, printable
from pirl_plugin.views.base import Views
from pirl_plugin.views.pixels import image_generator

_ACCURACIES = {"knn_top1": "kNN", "linear_top1": "Linear classifier"}
_POINTS = 60  # of the plotted loss
_MEASURES = {  # memory bank measure: title, and meaning of the dashed line
    "knn_top1": ("kNN in the memory bank, %", "most frequent class"),
    "effective_rank": ("Effective rank of the memory bank", "random rows, near the maximum"),
}


def write_report(
    out: Path,
    data: Data,
    checkpoints: dict[str, Path],
    results: dict[str, Any],
    evaluated: Evaluated,
) -> None:
    """Write ``report.html`` into ``out`` from a finished run.

    Args:
        out: the run's folder.
        data: the images.
        checkpoints: the checkpoints ``random`` and ``pirl``.
        results: as in ``results.json``.
        evaluated: the images with their features.
    """
    # Losses and measures from the run's log.
    lines = read_json_lines(out / "pretrain" / "stdout.json")
    loss_of_step = {int(line["iter"]): float(line["loss"]) for line in lines}
    losses = np.array(sorted(loss_of_step.items()))  # (K, 2): step, loss
    measures = {int(line["ep"]) + 1: line[LINE_KEY] for line in lines if LINE_KEY in line}
    network = read_config(out / "pretrain" / RUN_CONFIG)["MODEL"]["TRUNK"]["PIRL_RESNET"]
    epochs = counted(results["epochs"], "epoch")
    method = METHODS[results["method"]]
    machine = "" if torch.cuda.is_available() else " +config/pirl/machines=cpu_small"
    test_of_labels = "There were no labels for a test"
    outcome: dict[str, Any] = {}
    if evaluated.layers is not None:
        test_of_labels = "Labels were used only for the test"
        of_train, of_test = evaluated.shown.labels.tensor_split([evaluated.test_numbers.start])
        outcome = accuracy_facts(results, of_train, of_test, evaluated.layers.chart())
    # Of training and test images; for unlabeled images, both are the same.
    features = torch.cat(evaluated.features["pirl"])[: len(evaluated.shown.rows)]
    page.write_page(
        out / "report.html",
        f"{method.name} quickstart",
        introduction=f"A ResNet-{network['DEPTH']} saw {len(data.train):,} images without labels "
        f"for {epochs}. {test_of_labels}.",
        training={
            "plots": _plots(losses, results["epochs"], measures),
            "task": method.task,
            "samples": _samples(
                evaluated.shown, evaluated.test_numbers.start, results["seed"], method.views
            ),
        },
        colors=evaluated.shown.display.caption,
        map=draw_map(take_images(evaluated.shown, features)),
        neighbors=nearest_neighbors(evaluated, method.name),
        commands={
            "The same on your images": f"{program_name()} quickstart --data DIR --out runs/mine",
            "Train a larger network for longer, on these or other images": (
                f"{program_name()} train config=pretrain/pirl/own_images{machine} "
                f"'config.DATA.TRAIN.DATA_PATHS=[DIR]'"
            ),
            **next_commands(checkpoints["pirl"]),
        },
        settings=_settings(data, results, evaluated),
        **outcome,
    )


def _settings(data: Data, results: dict[str, Any], evaluated: Evaluated) -> dict[str, str]:
    """Return the table at the report's end."""
    test = "none"
    if data.labeled is not None:
        test = f"{evaluated.num_test:,} images in {data.labeled.test.path}"
    packages = ("pirl_plugin", "torch", "vissl")
    return {
        "Data": f"{len(data.train):,} images in {data.train.path}",
        "Test": test,
        "File names": f"relative to {printable(evaluated.shown.folder)}",
        "Method": METHODS[results["method"]].name,
        "Configuration": f"pretrain/{RUN_CONFIG}, from config=pretrain/pirl/quick_jigsaw",
        "Evaluation": "frozen res5 features: logistic regression; kNN, k = 20, cosine",
        "Seed": str(results["seed"]),
        "Processor": f"{results['processor']}, {results['threads']} threads",
        "Versions": ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages),
        "Date": datetime.date.today().isoformat(),
        "Time": f"{results['seconds'] / 60:.1f} min",
    }


def accuracy_facts(
    results: dict[str, Any],
    train_labels: torch.Tensor,
    test_labels: torch.Tensor,
    layers: page.Chart,
) -> dict[str, Any]:
    """Return the page's ``charts``, ``chance`` and ``verdict``.

    Args:
        results: as in ``results.json``.
        train_labels: int64 ``(N,)``.
        test_labels: int64 ``(M,)``.
        layers: chart that compares the layers.
    """
    count = len(test_labels)
    method = METHODS[results["method"]].name
    charts = []
    for key, title in _ACCURACIES.items():
        random = page.Accuracy("Random", results["random"][key], count, is_reference=True)
        pirl = page.Accuracy(method, results["pirl"][key], count)
        charts.append(page.Chart(title, [random, pirl]))
    charts.append(layers)
    chance = chance_top1(train_labels, test_labels)
    return {"charts": charts, "chance": chance, "verdict": verdict(results["gain"], method)}


def verdict(gains: Mapping[str, Sequence[float]], method: str = "PIRL") -> page.Verdict:
    """Decide from all accuracies whether a method learned.

    Args:
        gains: ``knn_top1`` and ``linear_top1`` → the gain over random weights, and half the width
            of its 95 % interval, in points.
        method: name of the method.

    Example:
        >>> verdict({"knn_top1": (7.0, 7.5), "linear_top1": (15.5, 4.9)}).kind
        'good'
    """
    details = ""
    is_gain = set()
    for key, title in _ACCURACIES.items():
        gain, error = gains[key]
        details += f" {title}: {gain:+.1f} ± {error:.1f} points"
        if abs(gain) > error:
            is_gain.add(gain > 0)
        else:
            details += ", which may be chance"
        details += "."
    if is_gain == {True}:
        return page.Verdict("good", f"{method} learned: its features beat random weights.{details}")
    if is_gain == {False}:
        return page.Verdict("bad", f"{method}'s features are worse than random weights.{details}")
    if is_gain:
        return page.Verdict("open", f"Compared with random weights, the measures differ.{details}")
    advice = "Train for more epochs or on more images."
    return page.Verdict("open", f"This run does not show that {method} learned. {advice}{details}")


def nearest_neighbors(evaluated: Evaluated, method: str = "PIRL") -> page.Neighbors:
    """Return a few images with their nearest training images under each network.

    Args:
        evaluated: the images. Without test images, training images are the queries, each without
            itself.
        method: the trained network's name.
    """
    nearest = {}
    for name, title in (("pirl", method), ("random", "Random")):
        gallery, queries = evaluated.features[name]
        nearest[title], _ = find_neighbors(
            queries, gallery, page.NUM_NEIGHBORS, leave_one_out=not evaluated.num_test
        )
    numbers = evaluated.test_numbers or range(len(evaluated.shown.rows))
    return page.show_neighbors(evaluated.shown, numbers, nearest)


def _plots(
    losses: NDArray[np.floating], epochs: int, measures: dict[int, dict[str, dict[str, float]]]
) -> list[dict[str, Any]]:
    """Return the loss, and each measure available in every measured epoch, for plots.

    Args:
        losses: ``(K, 2)``, step and loss. Each point of the plot is a mean over neighboring steps.
        epochs: number of training epochs.
        measures: epoch → name → ``value`` and ``chance``.
    """
    parts = np.array_split(losses, min(_POINTS, len(losses)))
    steps, means = np.array([part.mean(axis=0) for part in parts]).T
    epoch_of_step = steps * epochs / max(losses[-1, 0], 1)  # there may be only step 0
    plots = [{"title": "Loss", "epochs": epoch_of_step.tolist(), "values": means.tolist()}]
    for name, (title, dashed) in _MEASURES.items():
        if measures and all(name in of_epoch for of_epoch in measures.values()):
            plot = {"title": title, "epochs": [*measures], "dashed": dashed}
            for curve, key in (("values", "value"), ("chance", "chance")):
                plot[curve] = [of_epoch[name][key] for of_epoch in measures.values()]
            plots.append(plot)
    return plots


def _samples(shown: ShownImages, num_train: int, seed: int, views: Views) -> list[dict[str, str]]:
    """Return network inputs for a few images: file name or title → picture of image or view."""
    samples = []
    for row in evenly_spaced(num_train, 3):
        pixels = shown.source[shown.rows[row]][0]  # (C, H, W)
        drawn = views(pixels, image_generator(seed, 0, row))
        pictures = {shown.name(row): pixels, "Image view": drawn["images"]}
        if "patches" in drawn:
            pictures["Patches"] = make_grid(drawn["patches"], 3, padding=1, pad_value=255)
        if "transformed" in drawn:
            pictures["Rotated view"] = drawn["transformed"]
        samples.append(
            {name: data_url(shown.display.colors(image)) for name, image in pictures.items()}
        )
    return samples
