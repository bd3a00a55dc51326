"""``pirl-plugin knn``: the weighted kNN classifier on a checkpoint's frozen features."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pirl_plugin.system import arguments as kinds
from pirl_plugin.system.failures import Refused
from pirl_plugin.system.files import write_json

NO_CLASS = -1
"""Label of an image without a class, such as one beside the class folders."""

_SHOWN_QUERIES = 6
_SHOWN_NEIGHBORS = 6

if TYPE_CHECKING:
    from torch import Tensor

    from pirl_plugin.evaluation.labelled_images import LabelledImages
    from pirl_plugin.models.trunks import AnyTrunk


def main(arguments: list[str]) -> None:
    """Run the command: print the accuracies, and write ``results.json`` into ``--out``."""
    options = _parse(arguments)
    measured = measure_knn(options)
    results = measured.results
    print_accuracies(results)
    if options.report is not None:
        write_knn_report(options, measured)
        print(f"In {options.report}: accuracies and nearest neighbours")
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        write_json(options.out / "results.json", results)


@dataclass(frozen=True)
class MeasuredKNN:
    """What the command measured.

    Attributes:
        results: content of ``results.json``, with ``knn_top1`` in percent (first k).
        images: the training and test images.
        is_measured: bool ``(N,)``, whether each could be read and has a class, training images
            first.
        nearest: int64 ``(M, n)``, for each measured test image the nearest of the measured
            training images, the nearest first.
        same_class: how many of ``nearest`` have the class of their test image, percent.
    """

    results: dict[str, Any]
    images: LabelledImages
    is_measured: Tensor
    nearest: Tensor
    same_class: float


def measure_knn(options: argparse.Namespace) -> MeasuredKNN:
    """Measure the checkpoint and, unless ``--no-untrained``, an untrained network.

    Raises:
        FileNotFoundError: the checkpoint or the images do not exist.
        ValueError: train and val have different classes or only one, or no image can be read.
    """
    import numpy as np
    import torch

    from pirl_plugin.evaluation.command_network import load_network
    from pirl_plugin.evaluation.knn import same_class_share
    from pirl_plugin.evaluation.labelled_images import open_labelled
    from pirl_plugin.models.trunks import untrained

    trunk = load_network(options)
    device = next(trunk.parameters()).device
    trunks = [trunk, untrained(trunk).to(device)] if options.untrained else [trunk]
    images = open_labelled(options.data)
    print(f"crops of {images.train.path} and {images.test.path}: {trunk.preprocessing}", flush=True)

    # (N,), the training images first
    labels = torch.from_numpy(np.concatenate([images.train.labels(), images.test.labels()]))
    readable, row_of, features_of_trunks = network_features(options, trunks, images)
    is_measured = readable & (labels != NO_CLASS)
    is_train = torch.arange(len(labels)) < len(images.train)
    train_labels = labels[is_measured & is_train]
    test_labels = labels[is_measured & ~is_train]
    if not (len(train_labels) and len(test_labels)):
        raise Refused(f"--data = {options.data}: expected images that can be read, found none")
    accuracies = []  # of each network, for each k
    neighbors = []  # of each network, (M, max k)
    for features in features_of_trunks:  # of files, one is in memory at a time
        gallery = features[row_of[is_measured & is_train]]
        queries = features[row_of[is_measured & ~is_train]]
        by_k, nearest = vote_by_k(gallery, queries, train_labels, test_labels, options, device)
        accuracies.append(by_k)
        neighbors.append(nearest)
    # Results: of the checkpoint, and of an untrained network beside it.
    most_frequent = train_labels.mode().values
    results = {
        "benchmark": "knn",
        "knn_top1": accuracies[0][0],
        "top1_by_k": dict(zip(map(str, options.k), accuracies[0], strict=True)),
        "chance_top1": round(100 * float((test_labels == most_frequent).float().mean()), 2),
        "untrained_top1": accuracies[1][0] if options.untrained else None,
        "k": min(options.k[0], len(train_labels)),
        "temperature": options.temperature,
        "checkpoint": str(options.checkpoint.resolve()),
        "data": str(options.data.resolve()),
        **trunk.preprocessing.record(),
        "classes": len(train_labels.unique()),  # without empty folders
        "train_images": len(train_labels),
        "test_images": len(test_labels),
        "unreadable": int((~readable).sum()),
    }
    shown = neighbors[0][:, :_SHOWN_NEIGHBORS].cpu()
    same_class = same_class_share(shown, train_labels, test_labels)
    return MeasuredKNN(results, images, is_measured, shown, same_class)


def network_features(
    options: argparse.Namespace, trunks: Sequence[AnyTrunk], images: LabelledImages
) -> tuple[Tensor, Tensor, Iterator[Tensor]]:
    """Compute features in memory or, with ``--features``, in files that a later call reads.

    Args:
        options: of the command.
        trunks: T trunks.
        images: N training and test images.

    Returns:
        Bool ``(N,)``, whether each image could be read, the training images first; int64
        ``(N,)``, its row in the features; and each trunk's features, float16 ``(rows, D)``.
    """
    import torch
    from torch.utils.data import ConcatDataset

    from pirl_plugin.evaluation.command_network import describe_features
    from pirl_plugin.evaluation.feature_file import FeatureFile, fill, read_half_features
    from pirl_plugin.evaluation.features import Crops, collect_features

    normalize = trunks[0].preprocessing.normalize
    size = trunks[0].preprocessing.size
    how = {"batch": options.batch, "workers": options.workers, "normalize": normalize}
    splits = {"train": images.train, "val": images.test}
    if options.features is None:
        both: Any = ConcatDataset([Crops(source, size) for source in splits.values()])
        features, readable = collect_features(trunks, both, **how)
        return readable, torch.arange(len(readable)), iter(features)

    description = describe_features(options, trunks[0], splits)
    paths = [options.features, options.features.with_suffix(".untrained.npz")]
    files = []
    for number, path in enumerate(paths[: len(trunks)]):
        network = {**description, "untrained": True} if number else description
        files.append(FeatureFile(path, network, options.data, splits))
    fill(files, trunks, splits, size, **how)
    readable = files[0].readable
    row_of = readable.cumsum(0) - 1  # a file has only the readable images
    return readable, row_of, (read_half_features(file.path) for file in files)


def vote_by_k(
    gallery: Tensor,
    queries: Tensor,
    train_labels: Tensor,
    test_labels: Tensor,
    options: argparse.Namespace,
    device: Any,
) -> tuple[list[float], Tensor]:
    """Return the accuracy in percent for each k, and the neighbours int64 ``(M, max k)``."""
    from pirl_plugin.evaluation.knn import find_neighbors, vote

    rows, cosines = find_neighbors(queries, gallery, max(options.k), device=device)
    accuracies = []
    for k in options.k:
        top1 = vote(rows[:, :k], cosines[:, :k], train_labels, test_labels, options.temperature)
        accuracies.append(round(top1, 2))
    return accuracies, rows


def write_knn_report(options: argparse.Namespace, measured: MeasuredKNN) -> None:
    """Write ``--report``: the accuracies, and a few test images with their nearest neighbours."""
    from pirl_plugin.evaluation.features import evenly_spaced
    from pirl_plugin.evaluation.page import small_picture
    from pirl_plugin.evaluation.report import Accuracy, Picture, Query, write_report

    results = measured.results
    images = measured.images
    names = images.classes
    # `nearest` counts only the measured images: their rows in the sources.
    train_rows = measured.is_measured[: len(images.train)].nonzero()[:, 0].tolist()
    test_rows = measured.is_measured[len(images.train) :].nonzero()[:, 0].tolist()
    train_labels = images.train.labels()
    test_labels = images.test.labels()
    # A few test images with their neighbours.
    queries = []
    for number in evenly_spaced(len(test_rows), _SHOWN_QUERIES):
        row = test_rows[number]
        name = names[int(test_labels[row])]
        query = Query(Picture(small_picture(images.test[row][0]), name))
        for neighbor in measured.nearest[number].tolist():
            train_row = train_rows[neighbor]
            name = names[int(train_labels[train_row])]
            query.neighbors.append(Picture(small_picture(images.train[train_row][0]), name))
        queries.append(query)

    # The accuracies, and what they were measured with.
    count = results["test_images"]
    accuracies = [
        Accuracy(f"kNN, k = {k}", top1, count) for k, top1 in results["top1_by_k"].items()
    ]
    if results["untrained_top1"] is not None:
        untrained = results["untrained_top1"]
        accuracies.append(Accuracy(f"untrained, k = {results['k']}", untrained, count, True))
    settings = {
        "Checkpoint": results["checkpoint"],
        "Training images": f"{results['train_images']:,} in {images.train.path}",
        "Test images": f"{count:,} in {images.test.path}, {results['unreadable']} unreadable",
        "Images": f"{results['size']} px, mean {results['mean']}, std {results['std']}",
        "Votes": f"cosine, temperature {results['temperature']}",
    }
    title = "k nearest neighbours of frozen features"
    chance = results["chance_top1"]
    path = options.report
    write_report(path, title, accuracies, chance, settings, queries, measured.same_class)


def print_accuracies(results: dict[str, Any]) -> None:
    """Print the accuracies."""
    untrained = results["untrained_top1"]
    compared = "" if untrained is None else f", untrained {untrained:.2f} %"
    print(
        f"kNN top-1 {results['knn_top1']:.2f} % (k = {results['k']}; most frequent class "
        f"{results['chance_top1']:.2f} %{compared}; {results['train_images']} images of "
        f"{results['classes']} classes, {results['test_images']} tested, "
        f"{results['unreadable']} unreadable)"
    )
    if len(results["top1_by_k"]) > 1:
        by_k = [f"{k}: {top1} %" for k, top1 in results["top1_by_k"].items()]
        print(f"top-1 by k: {', '.join(by_k)}")


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="pirl-plugin knn",
        description="Measure a k-nearest-neighbour classifier on a checkpoint's frozen features, "
        "and an untrained network for comparison.\nExample: "
        "pirl-plugin knn --checkpoint runs/mine/checkpoint.torch --data DIR",
        formatter_class=kinds.HelpFormatter,
    )
    kinds.add_checkpoint_options(parser)
    kinds.add_labelled_data_option(parser)
    kinds.add_image_options(parser)
    add = parser.add_argument
    add("--out", type=kinds.output_folder, help="folder for results.json")
    number = kinds.whole_number(1)
    add("-k", "--k", type=number, nargs="+", default=[20], help="neighbours; knn_top1: the first")
    page = "write a page with the accuracies and some nearest neighbours"
    add("--report", metavar="FILE.html", type=kinds.user_path, help=page)
    add("--temperature", type=float, default=0.07, help="temperature of the votes")
    features = "file of embed, NAME.npz: read if it exists, or else written; a stopped one resumes"
    add("--features", type=kinds.npz_file, help=features)
    add("--no-untrained", dest="untrained", action="store_false", help="measure only the trunk")
    kinds.add_compute_options(parser)
    return parser.parse_args(arguments)
