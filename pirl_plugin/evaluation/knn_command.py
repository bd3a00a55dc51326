"""``pirl-plugin knn``: a weighted kNN classifier on a checkpoint's frozen features."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from pirl_plugin.system import arguments
from pirl_plugin.system.files import locked, locked_file
from pirl_plugin.system.loader import prepare_workers

if TYPE_CHECKING:
    from pirl_plugin.evaluation.knn import Answers
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
    prepare_workers("pirl_plugin.evaluation.features", options.workers)
    with ExitStack() as locks:
        if options.out is not None:
            locks.enter_context(locked(options.out, "--out"))
        if options.features is not None:
            locks.enter_context(locked_file(options.features, "--features"))
        _evaluate(options)


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = arguments.command_parser(
        "knn",
        "Evaluate a k-nearest-neighbor classifier on frozen features from a checkpoint and from an "
        "untrained network.",
        "--checkpoint runs/mine/checkpoint.torch --data DIR",
        arguments.NETWORK,
        arguments.LABELED_DATA,
        arguments.IMAGES,
        arguments.LAYER,
        arguments.COMPUTING,
        arguments.REPORT,
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
    features = "save one layer's features to NAME.npz, to reuse them later and to resume"
    add("--features", type=arguments.OutputFile((".npz",)), help=features)
    add("--no-untrained", dest="untrained", action="store_false", help="skip the untrained network")
    return arguments.parse_labeled(parser, argv)


def _evaluate(options: argparse.Namespace) -> None:
    from pirl_plugin.evaluation.knn import classify
    from pirl_plugin.evaluation.report import open_report
    from pirl_plugin.evaluation.request import Request
    from pirl_plugin.models.trunks import untrained
    from pirl_plugin.system.files import write_json

    request = Request.of_options(options)
    trunk, images = request.open_labeled("knn", options.out)
    report = open_report(options.report, options.show, images.train, request.weights, trunk)
    device = next(trunk.parameters()).device
    networks = {"trained": trunk}
    if options.untrained:
        networks["untrained"] = untrained(trunk).to(device)

    compared = None
    if options.features is not None:
        measured = _features_of_file(options, request, networks, images)
    else:
        measured, compared = _compute(options, request, networks, images)
    measured.warn_about_equal_images()

    answers = {}
    for name, features in zip(networks, measured.features, strict=True):
        train, test = measured.split(features)
        answers[name] = classify(
            test, train, measured.train_labels, options.k, options.temperature, device
        )
    results = {
        **_accuracies(options, measured, answers, images),
        "near_equal": images.near_equal,
        "top1_by_layer": {} if compared is None else compared.top1,
        **request.describe(trunk, images),
    }

    print(_summary(results))
    if report is not None:
        _write_page(report, images, results, measured, answers["trained"], compared)
    if options.out is not None:
        write_json(options.out / RESULTS, results)


def _compute(
    options: argparse.Namespace,
    request: Request,
    networks: dict[str, AnyTrunk],
    images: LabeledImages,
) -> tuple[LabeledFeatures, LayerComparison | None]:
    """Compute features; compare layers first, unless the user chose one."""
    from pirl_plugin.evaluation.labeled_features import labeled_features
    from pirl_plugin.evaluation.layer_comparison import compare_layers
    from pirl_plugin.models.resnet import LAST

    batch = request.batch
    workers = request.workers
    compared = None
    if request.layer is None:
        compared = compare_layers(
            networks, images, options.k[0], options.temperature, batch, workers
        )
        print(compared.table())
        if compared.pooled is not None:
            return compared.pooled, compared
    layers = [request.layer or LAST]
    trunks = list(networks.values())
    return labeled_features(trunks, layers, images, batch=batch, workers=workers), compared


def _features_of_file(
    options: argparse.Namespace,
    request: Request,
    networks: dict[str, AnyTrunk],
    images: LabeledImages,
) -> LabeledFeatures:
    """Return the features in ``--features``; compute them first if they are missing."""
    import torch

    from pirl_plugin.evaluation.feature_store import FeatureFile
    from pirl_plugin.evaluation.features import fill
    from pirl_plugin.evaluation.labeled_features import LabeledFeatures
    from pirl_plugin.images.classes import NO_CLASS
    from pirl_plugin.models.resnet import LAST

    layer = request.layer or LAST
    print(f"layers are not compared, because --features holds only {layer}")
    trunks = list(networks.values())
    names = ["features", "untrained"][: len(trunks)]
    description = request.identify_features(trunks[0], layer)
    file = FeatureFile(options.features, description, images.joined, request.data, names)
    fill(file, trunks, layer, request.batch, request.workers)
    arrays = file.features
    # The file has all readable images, including unlabeled ones.
    rows = file.readable.nonzero()[:, 0]
    is_labeled = torch.from_numpy(images.labels)[rows] != NO_CLASS
    features = [torch.from_numpy(array)[is_labeled] for array in arrays.values()]
    digests = torch.from_numpy(file.digests)[is_labeled]
    if not file.is_complete:
        file.write({}, arrays)
    return LabeledFeatures(images, rows[is_labeled], features, digests)


def _accuracies(
    options: argparse.Namespace,
    measured: LabeledFeatures,
    answers: dict[str, Answers],
    images: LabeledImages,
) -> dict[str, Any]:
    """Return accuracies in percent, and image counts, under their names in ``results.json``."""
    from pirl_plugin.evaluation.knn import chance_top1
    from pirl_plugin.images.classes import NO_CLASS

    train_labels = measured.train_labels
    test_labels = measured.test_labels
    num_labeled = int((images.labels != NO_CLASS).sum())
    first_k = str(options.k[0])
    top1_by_k = answers["trained"].top1_by_k(test_labels)
    untrained_top1 = None
    if "untrained" in answers:
        untrained_top1 = answers["untrained"].top1_by_k(test_labels)[first_k]
    return {
        "benchmark": "knn",
        "knn_top1": top1_by_k[first_k],
        "top1_by_k": top1_by_k,
        "chance_top1": chance_top1(train_labels, test_labels),
        "untrained_top1": untrained_top1,
        "k": min(options.k[0], len(train_labels)),
        "temperature": options.temperature,
        "classes": len(train_labels.unique()),  # without empty folders
        "train_images": len(train_labels),
        "test_images": len(test_labels),
        "unreadable": num_labeled - len(train_labels) - len(test_labels),
    }


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
    images: LabeledImages,
    results: dict[str, Any],
    measured: LabeledFeatures,
    answers: Answers,
    compared: LayerComparison | None,
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
    if compared is not None:
        charts |= compared.chart()
    predicted = next(iter(answers.predicted.values()))
    votes = measured.train_labels[answers.rows[:, : results["k"]]]
    shares = (votes == predicted[:, None]).float().mean(dim=1)
    page_images = measured.show(report.display).with_predictions(
        slice(num_train, None), predicted, shares, images.classes
    )
    report.write(
        title="Nearest neighbors in frozen features",
        images=page_images,
        labeled=images,
        accuracy=accuracy,
        charts=charts,
        chance=results["chance_top1"],
        num_train=num_train,
        map=draw_map(page_images, measured.features[0]),
        mistakes_text=f"Percentages are shares of the {results['k']} nearest training images.",
    )
