"""``pirl-plugin knn``: a weighted kNN classifier on a checkpoint's frozen features."""

from __future__ import annotations

import argparse
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from pirl_plugin.system import arguments
from pirl_plugin.system.files import locked, write_json
from pirl_plugin.system.loader import prepare_workers

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from pirl_plugin.evaluation.labeled_features import LabeledFeatures
    from pirl_plugin.evaluation.layer_comparison import LayerComparison
    from pirl_plugin.evaluation.page import Report
    from pirl_plugin.evaluation.request import Request
    from pirl_plugin.images.labeled import LabeledImages
    from pirl_plugin.models.trunks import AnyTrunk

RESULTS = "results.json"


def main(argv: list[str]) -> None:
    """Print the accuracies, and write ``results.json`` into ``--out``.

    Raises:
        FileNotFoundError: the checkpoint or the images do not exist.
        ValueError: there is only one class, ``val`` has a class that ``train`` lacks, no image is
            readable, or another command wrote to ``--out``.
    """
    options = _parse(argv)
    prepare_workers("pirl_plugin.evaluation.crops", options.workers)
    from pirl_plugin.evaluation.page import open_report
    from pirl_plugin.evaluation.request import Request
    from pirl_plugin.models.resnet import LAST
    from pirl_plugin.models.trunks import untrained

    request = Request.of_options(options)
    with nullcontext() if options.out is None else locked(options.out, "--out"):
        trunk, images = request.open_labeled("knn", options.out)
        report = open_report(options.report, options.show, images.train, request.weights, trunk)
        device = next(trunk.parameters()).device
        networks = {"trained": trunk}
        if options.untrained:
            networks["untrained"] = untrained(trunk).to(device)

        measured, comparison = _compute(request, networks, images, options)
        measured.warn_about_equal_images()
        predictions, results = _measure(measured, options, device)
        results |= {
            "near_equal": measured.near_equal,
            "top1_by_layer": {} if comparison is None else comparison.top1,
            "layer": request.layer or LAST,
            "checkpoint": request.weights,
            "data": None if options.data is None else str(options.data.resolve()),
            "train": images.train.path,
            "val": images.test.path,
            "size": trunk.network_config.size,
            "mean": list(trunk.network_config.mean),
            "std": list(trunk.network_config.std),
        }

        print(_summary(results))
        if report is not None:
            _write_page(report, results, measured, predictions, comparison)
        if options.out is not None:
            write_json(options.out / RESULTS, results)


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = arguments.command_parser(
        "knn",
        "Evaluate a k-nearest-neighbor classifier on frozen features from a checkpoint and from an "
        "untrained network.",
        "--checkpoint runs/mine/checkpoint.torch --data DIR",
        arguments.LABELED_DATA,
        arguments.FEATURES,
        arguments.LAYER,
        weights=arguments.WEIGHTS,
    )
    add = parser.add_argument
    add("--out", type=arguments.output_folder, help="folder for results.json")
    neighbors = "numbers of neighbors that vote (default: 20); the first gives knn_top1"
    add("-k", "--k", type=arguments.WholeNumber(1), nargs="+", default=[20], help=neighbors)
    temperature = "temperature for the votes (default: %(default)s)"
    add("--temperature", type=float, default=0.07, help=temperature)
    add("--no-untrained", dest="untrained", action="store_false", help="skip the untrained network")
    return arguments.parse_labeled(parser, argv)


def _compute(
    request: Request,
    networks: dict[str, AnyTrunk],
    images: LabeledImages,
    options: argparse.Namespace,
) -> tuple[LabeledFeatures, LayerComparison | None]:
    """Compute features, and compare layers unless the user chose one."""
    from pirl_plugin.evaluation.labeled_features import labeled_features
    from pirl_plugin.evaluation.layer_comparison import compare_layers

    batch = request.batch
    workers = request.workers
    if request.layer is not None:
        trunks = list(networks.values())
        return labeled_features(trunks, [request.layer], images, None, batch, workers), None
    comparison, measured = compare_layers(
        networks, images, options.k[0], options.temperature, batch, workers
    )
    return measured, comparison


def _measure(
    measured: LabeledFeatures, options: argparse.Namespace, device: torch.device
) -> tuple[tuple[Tensor, Tensor], dict[str, Any]]:
    """Classify the test images.

    Returns:
        The trained network's predicted labels, int64 ``(M,)``, and the shares of neighbors with
        these labels; then accuracies in percent and image counts, under their names in
        ``results.json``.
    """
    from pirl_plugin.evaluation.knn import find_neighbors, percent_right, vote
    from pirl_plugin.images.classes import NO_CLASS

    train_labels = measured.train_labels
    test_labels = measured.test_labels
    predictions = []
    top1 = []
    for features in measured.features:
        train, test = measured.split(features)
        rows, cosines = find_neighbors(test, train, max(options.k), device=device)
        for k in options.k:
            predicted = vote(rows[:, :k], cosines[:, :k], train_labels, options.temperature)
            shares = (train_labels[rows[:, :k].cpu()] == predicted[:, None]).float().mean(dim=1)
            predictions.append((predicted, shares))
            top1.append(percent_right(predicted == test_labels))
    num_k = len(options.k)
    num_labeled = int((measured.images.labels != NO_CLASS).sum())
    results = {
        "benchmark": "knn",
        "knn_top1": top1[0],
        "chance_top1": measured.chance_top1,
        "top1_by_k": dict(zip(map(str, options.k), top1[:num_k], strict=True)),
        "untrained_top1": top1[num_k] if options.untrained else None,
        "k": min(options.k[0], len(train_labels)),
        "temperature": options.temperature,
        "classes": len(train_labels.unique()),  # without empty folders
        "train_images": len(train_labels),
        "test_images": len(test_labels),
        "unreadable": num_labeled - len(measured.rows),
    }
    return predictions[0], results


def _summary(results: dict[str, Any]) -> str:
    """Format the accuracies for the console."""
    compared = ""
    if results["untrained_top1"] is not None:
        compared = f", untrained {results['untrained_top1']:.2f} %"
    summary = (
        f"kNN top-1 {results['knn_top1']:.2f} % (k = {results['k']}; most frequent class "
        f"{results['chance_top1']:.2f} %{compared}; {results['train_images']} images in "
        f"{results['classes']} classes, {results['test_images']} tested, "
        f"{results['unreadable']} unreadable)"
    )
    if len(results["top1_by_k"]) > 1:
        by_k = [f"{k}: {top1} %" for k, top1 in results["top1_by_k"].items()]
        summary += f"\ntop-1 by k: {', '.join(by_k)}"
    return summary


def _write_page(
    report: Report,
    results: dict[str, Any],
    measured: LabeledFeatures,
    predictions: tuple[Tensor, Tensor],
    comparison: LayerComparison | None,
) -> None:
    """Write ``--report``."""
    from pirl_plugin.evaluation.image_map import draw_map
    from pirl_plugin.evaluation.page import Accuracy

    k = results["k"]
    count = results["test_images"]
    accuracy = Accuracy(f"kNN, k = {k}", results["knn_top1"], count)
    charts = {"": [accuracy]}
    if results["untrained_top1"] is not None:
        name = f"untrained, k = {k}"
        charts[""].append(Accuracy(name, results["untrained_top1"], count, is_reference=True))
    if comparison is not None:
        charts |= comparison.chart()
    images = measured.show(report.display).with_predictions(
        slice(measured.num_train, None), *predictions, measured.images.classes
    )
    report.write(
        title="Nearest neighbors in frozen features",
        images=images,
        measured=measured,
        accuracy=accuracy,
        charts=charts,
        map=draw_map(images, measured.features[0]),
        mistakes_text=f"Percentages are shares of the {k} nearest training images.",
    )
