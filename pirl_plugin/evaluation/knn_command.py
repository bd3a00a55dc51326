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
    from pirl_plugin.evaluation.report import Report
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
    from pirl_plugin.evaluation.report import open_report
    from pirl_plugin.evaluation.request import Request
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
        nearest, predicted, results = _measure(measured, options, device)
        results |= {
            "near_equal": images.near_equal,
            "top1_by_layer": {} if comparison is None else comparison.top1,
            **request.describe(trunk, images),
        }

        print(_summary(results))
        if report is not None:
            _write_page(report, results, measured, nearest, predicted, comparison)
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
    number = arguments.WholeNumber(1)
    add(
        "-k",
        "--k",
        type=number,
        nargs="+",
        default=[20],
        help="numbers of neighbors (default: 20); the first gives knn_top1",
    )
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
) -> tuple[Tensor, Tensor, dict[str, Any]]:
    """Classify the test images.

    Returns:
        For the trained network, the nearest training images, int64 ``(M, max k)``, and the first
        k's predicted labels, int64 ``(M,)``; then accuracies in percent and image counts, under
        their names in ``results.json``.
    """
    from pirl_plugin.evaluation.knn import chance_top1, classify, percent_right
    from pirl_plugin.images.classes import NO_CLASS

    train_labels = measured.train_labels
    test_labels = measured.test_labels
    classified = []
    for features in measured.features:
        train, test = measured.split(features)
        classified.append(
            classify(test, train, train_labels, options.k, options.temperature, device)
        )
    top1 = []
    for _, predicted in classified:
        top1.append([percent_right(labels == test_labels) for labels in predicted])
    nearest, predicted = classified[0]
    num_labeled = int((measured.images.labels != NO_CLASS).sum())
    results = {
        "benchmark": "knn",
        "knn_top1": top1[0][0],
        "top1_by_k": dict(zip(map(str, options.k), top1[0], strict=True)),
        "chance_top1": chance_top1(train_labels, test_labels),
        "untrained_top1": top1[1][0] if options.untrained else None,
        "k": min(options.k[0], len(train_labels)),
        "temperature": options.temperature,
        "classes": len(train_labels.unique()),  # without empty folders
        "train_images": len(train_labels),
        "test_images": len(test_labels),
        "unreadable": num_labeled - len(measured.rows),
    }
    return nearest, predicted[0], results


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
    nearest: Tensor,
    predicted: Tensor,
    comparison: LayerComparison | None,
) -> None:
    """Write ``--report``."""
    from pirl_plugin.evaluation.image_map import draw_map
    from pirl_plugin.evaluation.page import Accuracy

    num_train = results["train_images"]
    num_tested = results["test_images"]
    bars = [Accuracy(f"kNN, k = {k}", top1, num_tested) for k, top1 in results["top1_by_k"].items()]
    accuracy = bars[0]
    if results["untrained_top1"] is not None:
        name = f"untrained, k = {results['k']}"
        bars.append(Accuracy(name, results["untrained_top1"], num_tested, is_reference=True))
    charts = {"": bars}
    if comparison is not None:
        charts |= comparison.chart()
    votes = measured.train_labels[nearest[:, : results["k"]]]
    shares = (votes == predicted[:, None]).float().mean(dim=1)
    page_images = measured.show(report.display).with_predictions(
        slice(num_train, None), predicted, shares, measured.images.classes
    )
    report.write(
        title="Nearest neighbors in frozen features",
        images=page_images,
        labeled=measured.images,
        accuracy=accuracy,
        charts=charts,
        chance=results["chance_top1"],
        num_train=num_train,
        map=draw_map(page_images, measured.features[0]),
        mistakes_text=f"Percentages are shares of the {results['k']} nearest training images.",
    )
