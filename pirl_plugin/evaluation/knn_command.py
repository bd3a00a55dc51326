"""``pirl-plugin knn``: a weighted kNN classifier on a checkpoint's frozen features."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from pirl_plugin.system import arguments
from pirl_plugin.system.failures import check_name
from pirl_plugin.system.files import locked_file
from pirl_plugin.system.loader import prepare_workers

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from pirl_plugin.evaluation.labeled_features import LabeledFeatures
    from pirl_plugin.evaluation.layer_comparison import LayerComparison
    from pirl_plugin.evaluation.page import Chart
    from pirl_plugin.evaluation.pictures import ShownImages
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
    results_file = None if options.out is None else options.out / RESULTS
    outputs = {"--out": results_file, "--features": options.features}
    with ExitStack() as locks:
        for option, file in outputs.items():
            if file is not None:
                locks.enter_context(locked_file(file, option))
        _measure_and_write(options)


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
    temperature = "temperature for the votes"
    add("--temperature", type=float, default=0.07, help=temperature)
    features = "save one layer's features to NAME.npz, to reuse them later and to resume"
    add("--features", type=arguments.OutputFile((".npz",)), help=features)
    add("--no-untrained", dest="untrained", action="store_false", help="skip the untrained network")
    return arguments.parse_labeled(parser, argv)


def _measure_and_write(options: argparse.Namespace) -> None:
    import torch

    from pirl_plugin.evaluation.network_options import load_trunk_and_images, prepare_report
    from pirl_plugin.images.classes import NO_CLASS
    from pirl_plugin.models.resnet import LAST
    from pirl_plugin.models.trunks import untrained
    from pirl_plugin.system.files import write_json

    trunk, images = load_trunk_and_images(options)
    display = prepare_report(options, images.train, trunk)
    device = next(trunk.parameters()).device
    layer = options.layer or LAST
    check_name("--layer", layer, trunk.layers)
    networks = {"trained": trunk}
    if options.untrained:
        networks["untrained"] = untrained(trunk).to(device)
    measured, compared = _measure(options, networks, images, layer)
    num_labeled = int((images.labels != NO_CLASS).sum())
    accuracies, nearest, predicted = _classify(options, measured, num_labeled, device)
    measured.warn_about_equal_images(images)
    results = {
        **accuracies,
        "layer": layer,
        "near_equal": images.near_equal,
        "top1_by_layer": {} if compared is None else compared.top1,
        "checkpoint": arguments.weights_name(options),
        "data": None if options.data is None else str(options.data.resolve()),
        "train": images.train.path,
        "val": images.test.path,
        "size": trunk.network_config.size,
        "mean": list(trunk.network_config.mean),
        "std": list(trunk.network_config.std),
    }
    if display is not None:
        charts = [] if compared is None else [compared.chart()]
        shown = measured.shown(images, display)
        features = torch.cat(measured.features[0])
        _write_page(options, trunk, images, results, shown, features, nearest, predicted, charts)
    if options.out is not None:
        write_json(options.out / RESULTS, results)


def _write_page(
    options: argparse.Namespace,
    trunk: AnyTrunk,
    images: LabeledImages,
    results: dict[str, Any],
    shown: ShownImages,
    features: Tensor,
    nearest: Tensor,
    predicted: Tensor,
    charts: list[Chart],
) -> None:
    """Write ``--report``.

    Args:
        options: from the command line.
        trunk: the network.
        images: training and test images.
        results: as in ``results.json``.
        shown: N training and M test images.
        features: ``(N + M, D)``.
        nearest: int64 ``(M, max k)``, the nearest training images.
        predicted: int64 ``(M,)``, classes predicted from the first k.
        charts: charts after the first one.
    """
    from pirl_plugin.evaluation.image_map import draw_map, take_images
    from pirl_plugin.evaluation.network_options import report_accuracies
    from pirl_plugin.evaluation.page import show_neighbors
    from pirl_plugin.evaluation.predictions import Predictions

    num_train = results["train_images"]
    bars = {f"kNN, k = {k}": top1 for k, top1 in results["top1_by_k"].items()}
    result = next(iter(bars))
    if options.untrained:
        bars[f"untrained, k = {results['k']}"] = results["untrained_top1"]
    queries = range(num_train, len(shown.rows))
    predictions = Predictions.of_votes(shown, queries, nearest[:, : results["k"]], predicted)
    text = f"Percentages are shares of the {results['k']} nearest training images."
    report_accuracies(
        options,
        "Nearest neighbors in frozen features",
        trunk,
        images,
        bars,
        num_train=num_train,
        num_tested=results["test_images"],
        result=result,
        shown=shown,
        charts=charts,
        map=draw_map(take_images(shown, features), predictions),
        neighbors=show_neighbors(shown, queries, {"": nearest}),
        pictures=[predictions.disagreements("Most confident mistakes", text)],
    )


def _measure(
    options: argparse.Namespace, networks: dict[str, AnyTrunk], images: LabeledImages, layer: str
) -> tuple[LabeledFeatures, LayerComparison | None]:
    """Return features from the file or the layer comparison, or compute them."""
    from pirl_plugin.evaluation.labeled_features import labeled_features
    from pirl_plugin.evaluation.layer_comparison import compare_layers

    trunks = list(networks.values())
    if options.features is not None:
        print(f"layers are not compared, because --features holds only {layer}")
        return _features_of_file(options, trunks, images, layer), None
    compared = None
    if options.layer is None:
        compared = compare_layers(
            networks,
            images,
            options.k[0],
            options.temperature,
            options.batch,
            options.workers,
        )
        print(compared.table())
        if compared.pooled is not None:
            return compared.pooled, compared
    measured = labeled_features(
        trunks, [layer], images, batch=options.batch, workers=options.workers
    )
    return measured, compared


def _features_of_file(
    options: argparse.Namespace, trunks: list[AnyTrunk], images: LabeledImages, layer: str
) -> LabeledFeatures:
    """Return the features in ``--features``; compute them first if they are missing."""
    import numpy as np
    import torch

    from pirl_plugin.evaluation.feature_store import FeatureFile
    from pirl_plugin.evaluation.features import fill
    from pirl_plugin.evaluation.labeled_features import LabeledFeatures
    from pirl_plugin.evaluation.network_options import identify_features
    from pirl_plugin.images.classes import NO_CLASS

    arrays = ["features", "untrained"][: len(trunks)]
    description = {**identify_features(options, trunks[0], layer), "set of networks": arrays}
    file = FeatureFile(options.features, description, images.joined(), options.data)
    if not file.is_complete:
        fill(file, trunks, layer, options.batch, options.workers)
        file.write({}, dict(zip(arrays, file.features, strict=True)))
    # The file has all readable images, including unlabeled ones.
    rows = file.readable.nonzero()[:, 0]
    is_labeled = torch.from_numpy(images.labels)[rows] != NO_CLASS
    content = np.load(options.features)
    features = [torch.from_numpy(content[name])[is_labeled] for name in arrays]
    digests = torch.from_numpy(content["digests"])[is_labeled]
    return LabeledFeatures.of_rows(images, rows[is_labeled], features, digests)


def _classify(
    options: argparse.Namespace, measured: LabeledFeatures, num_labeled: int, device: torch.device
) -> tuple[dict[str, Any], Tensor, Tensor]:
    """Classify test images using each network's features, and print the accuracies.

    Args:
        options: from the command line.
        measured: features from the checkpoint and, unless ``--no-untrained``, from an untrained
            network, for N training and M test images.
        num_labeled: number of labeled images, readable or not.
        device: where to compare features.

    Returns:
        Results such as ``knn_top1`` (percent) and image counts; and from the checkpoint's features,
        the neighbors, int64 ``(M, max k)``, indices of training images, nearest first, and the
        classes predicted with the first k, int64 ``(M,)``.
    """
    from pirl_plugin.evaluation.knn import chance_top1, find_neighbors, vote

    train_labels = measured.train_labels
    test_labels = measured.test_labels
    accuracies: list[dict[str, float]] = []  # per network: k → top-1
    neighbors = []
    predictions = []
    for train, test in measured.features:
        rows, cosines = find_neighbors(test, train, max(options.k), device=device)
        neighbors.append(rows.cpu())
        top1_by_k = {}
        for k in options.k:
            predicted = vote(rows[:, :k], cosines[:, :k], train_labels, options.temperature)
            predictions.append(predicted)
            num_right = int((predicted == test_labels).sum())
            top1_by_k[str(k)] = round(100.0 * num_right / len(test_labels), 2)
        accuracies.append(top1_by_k)
    first_k = str(options.k[0])
    top1_by_k = accuracies[0]
    results = {
        "benchmark": "knn",
        "knn_top1": top1_by_k[first_k],
        "top1_by_k": top1_by_k,
        "chance_top1": chance_top1(train_labels, test_labels),
        "untrained_top1": accuracies[1][first_k] if options.untrained else None,
        "k": min(options.k[0], len(train_labels)),
        "temperature": options.temperature,
        "classes": len(train_labels.unique()),  # without empty folders
        "train_images": len(train_labels),
        "test_images": len(test_labels),
        "unreadable": num_labeled - len(train_labels) - len(test_labels),
    }
    compared = f", untrained {results['untrained_top1']:.2f} %" if options.untrained else ""
    print(
        f"kNN top-1 {results['knn_top1']:.2f} % (k = {results['k']}; most frequent class "
        f"{results['chance_top1']:.2f} %{compared}; {results['train_images']} images in "
        f"{results['classes']} classes, {results['test_images']} tested, "
        f"{results['unreadable']} unreadable)"
    )
    if len(top1_by_k) > 1:
        by_k = [f"{k}: {top1} %" for k, top1 in top1_by_k.items()]
        print(f"top-1 by k: {', '.join(by_k)}")
    return results, neighbors[0], predictions[0]
