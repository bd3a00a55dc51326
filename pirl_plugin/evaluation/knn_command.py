"""``pirl-plugin knn``: the weighted kNN classifier on a checkpoint's frozen features."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pirl_plugin.system import arguments as kinds
from pirl_plugin.system.failures import Refused
from pirl_plugin.system.lock import locked_files

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from pirl_plugin.evaluation.feature_file import FeatureStore
    from pirl_plugin.images.sources import ImageSource, LabelledImages
    from pirl_plugin.models.trunks import AnyTrunk

RESULTS = "results.json"


def main(arguments: list[str]) -> None:
    """Run the command: print the accuracies, and write ``results.json`` into ``--out``.

    Raises:
        FileNotFoundError: the checkpoint or the images do not exist.
        ValueError: train and val have different classes or only one, or no image can be read.
    """
    options = _parse(arguments)
    results_file = None if options.out is None else options.out / RESULTS
    with locked_files(out=results_file, report=options.report, features=options.features):
        _measure_and_write(options)


def _measure_and_write(options: argparse.Namespace) -> None:
    from pirl_plugin.evaluation.feature_file import fill
    from pirl_plugin.evaluation.features import load_network
    from pirl_plugin.images.columns import Columns
    from pirl_plugin.images.sources import open_labelled
    from pirl_plugin.models.trunks import LAST, Layers, untrained
    from pirl_plugin.system.files import write_json

    trunk = load_network(options, options.device)
    images = open_labelled(options.data, Columns(options.image_column, options.label_column))
    print(f"crops of {images.train.path} and {images.test.path}: {trunk.preprocessing}", flush=True)
    networks = [trunk, untrained(trunk).to(options.device)] if options.untrained else [trunk]
    layer = options.layer or LAST
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
    top1_by_layer: dict[str, list[float]] = {}
    stores: list[FeatureStore] = []
    if options.layer is None and options.features is None:
        top1_by_layer, stores = _compare_layers(options, networks, images)
    if not stores:  # the layers were not compared on all images
        stores = _open_stores(options, trunk, images)[: len(networks)]
        chosen = [Layers(network, [layer]) for network in networks]
        fill(stores, chosen, trunk.preprocessing, options.batch, options.workers)

    readable = stores[0].readable
    num_train = len(images.train)
    train = _measured(images.train, images.train_labels, readable[:num_train], 0)
    stored = train.stored.stop
    test = _measured(images.test, images.test_labels, readable[num_train:], stored)
    if not (train.rows and test.rows):
        raise Refused(f"--data = {options.data}: expected images that can be read, found none")
    measured, nearest = _measure(options, stores, train, test)
    results = {
        **measured,
        "layer": layer,
        "top1_by_layer": top1_by_layer,
        "checkpoint": kinds.weights_name(options),
        "data": str(options.data.resolve()),
        **trunk.preprocessing.record(),
        "classes": len(train.labels.unique()),  # without empty folders
        "train_images": len(train.rows),
        "test_images": len(test.rows),
        "unreadable": int((~readable).sum()),
    }
    _print_accuracies(results)
    if options.report is not None:
        _write_report(options, results, train, test, nearest, images.classes)
        print(f"In {options.report}: accuracies and nearest neighbours")
    if options.out is not None:
        write_json(options.out / RESULTS, results)


@dataclass(frozen=True)
class MeasuredImages:
    """The images of a split that can be read and have a class.

    Attributes:
        source: source of the split.
        rows: N rows of the source.
        labels: int64 ``(N,)``.
        stored: the split's readable images in a store.
        has_class: bool, which of ``stored`` have a class.
    """

    source: ImageSource
    rows: list[int]
    labels: Tensor
    stored: slice
    has_class: Tensor

    def select(self, features: Tensor) -> Tensor:
        """Return the features ``(N, D)`` of these images from those of a store."""
        of_split = features[self.stored]
        # Without a copy if possible: the features may be larger than the memory.
        return of_split if self.has_class.all() else of_split[self.has_class]


def _measured(
    source: ImageSource, classes: NDArray[np.int64], readable: Tensor, start: int
) -> MeasuredImages:
    """Return the images of a split that are measured.

    Args:
        source: source of the split.
        classes: int64, class of each image of the source, or ``NO_CLASS``.
        readable: bool, whether each image of the source can be read.
        start: place of the split's first readable image in a store.
    """
    import torch

    from pirl_plugin.images.classes import NO_CLASS

    labels = torch.from_numpy(classes)
    rows = (readable & (labels != NO_CLASS)).nonzero()[:, 0]
    stored = slice(start, start + int(readable.sum()))
    return MeasuredImages(source, rows.tolist(), labels[rows], stored, labels[readable] != NO_CLASS)


def _compare_layers(
    options: argparse.Namespace, networks: list[AnyTrunk], images: LabelledImages
) -> tuple[dict[str, list[float]], list[FeatureStore]]:
    """Print the accuracy of each layer, and advice.

    Returns:
        Layer → top-1 of each network; and the pooled features of each network, if they are of all
        images.
    """
    from pirl_plugin.evaluation.layer_comparison import compare_layers

    compared = compare_layers(
        networks,
        images,
        options.k[0],
        options.temperature,
        options.batch,
        options.workers,
        options.out,
    )
    print(compared.table(["trained", "untrained"][: len(networks)]))
    if compared.advice:
        print(compared.advice)
    return compared.top1, compared.stores


def _open_stores(
    options: argparse.Namespace, trunk: AnyTrunk, images: LabelledImages
) -> list[FeatureStore]:
    """Open stores for the features of the checkpoint, and of an untrained network.

    They are files that a later call reads, with ``--features``; or else files without a name.
    """
    from pirl_plugin.evaluation.feature_file import FeatureFile, FeatureStore, describe_features

    splits = {"train": images.train, "val": images.test}
    if options.features is None:
        return [FeatureStore(splits, options.out), FeatureStore(splits, options.out)]
    description = describe_features(options, trunk.preprocessing, splits)
    beside = options.features.with_suffix(".untrained.npz")
    return [
        FeatureFile(options.features, description, options.data, splits),
        FeatureFile(beside, {**description, "untrained": True}, options.data, splits),
    ]


def _measure(
    options: argparse.Namespace,
    stores: list[FeatureStore],
    train: MeasuredImages,
    test: MeasuredImages,
) -> tuple[dict[str, Any], Tensor]:
    """Classify the test images by the features of each network.

    Args:
        options: of the command.
        stores: of the checkpoint and, unless ``--no-untrained``, of an untrained network.
        train: N training images.
        test: M test images.

    Returns:
        Results: ``knn_top1`` and others in percent; and the checkpoint's neighbours, int64
        ``(M, max k)``: numbers of training images, the nearest first.
    """
    from pirl_plugin.evaluation.knn import find_neighbors, vote

    accuracies: list[dict[str, float]] = []  # of each network: k → top-1
    neighbors = []
    for store in stores:
        features = store.half_features()
        rows, cosines = find_neighbors(
            test.select(features), train.select(features), max(options.k), device=options.device
        )
        neighbors.append(rows.cpu())
        top1_by_k = {}
        for k in options.k:
            nearest = (rows[:, :k], cosines[:, :k])
            top1 = vote(*nearest, train.labels, test.labels, options.temperature)
            top1_by_k[str(k)] = round(top1, 2)
        accuracies.append(top1_by_k)
    first_k = str(options.k[0])
    most_frequent = train.labels.mode().values
    results = {
        "benchmark": "knn",
        "knn_top1": accuracies[0][first_k],
        "top1_by_k": accuracies[0],
        "chance_top1": round(100 * float((test.labels == most_frequent).float().mean()), 2),
        "untrained_top1": accuracies[1][first_k] if options.untrained else None,
        "k": min(options.k[0], len(train.rows)),
        "temperature": options.temperature,
    }
    return results, neighbors[0]


def _print_accuracies(results: dict[str, Any]) -> None:
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


def _write_report(
    options: argparse.Namespace,
    results: dict[str, Any],
    train: MeasuredImages,
    test: MeasuredImages,
    nearest: Tensor,
    classes: list[str],
) -> None:
    """Write ``--report``: the accuracies, and a few test images with their nearest neighbours."""
    from pirl_plugin.evaluation import page

    gallery = page.ShownImages(train.source, train.rows, train.labels, classes)
    queries = page.ShownImages(test.source, test.rows, test.labels, classes)
    bars = [
        page.Accuracy(f"kNN, k = {k}", top1, len(test.rows))
        for k, top1 in results["top1_by_k"].items()
    ]
    if options.untrained:
        name = f"untrained, k = {results['k']}"
        bars.append(page.Accuracy(name, results["untrained_top1"], len(test.rows), True))
    charts = [page.Chart("", bars)]
    if results["top1_by_layer"]:
        layers = results["top1_by_layer"].items()
        charts.append(
            page.Chart(
                "Layers, kNN",
                [page.Accuracy(name, top1[0], len(test.rows)) for name, top1 in layers],
            )
        )
    page.write_page(
        options.report,
        "k nearest neighbours of frozen features",
        charts=charts,
        chance=results["chance_top1"],
        neighbors=page.show_neighbors(gallery, queries, {"": nearest}),
        settings={
            "Checkpoint": results["checkpoint"],
            "Training images": f"{len(train.rows):,} in {train.source.path}",
            "Test images": f"{len(test.rows):,} in {test.source.path}, "
            f"{results['unreadable']} unreadable",
            "Images": f"{results['size']} px, mean {results['mean']}, std {results['std']}",
            "Votes": f"cosine, temperature {results['temperature']}",
        },
    )


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = kinds.command_parser(
        "knn",
        "Measure a k-nearest-neighbour classifier on a checkpoint's frozen features, and an "
        "untrained network for comparison.",
        "--checkpoint runs/mine/checkpoint.torch --data DIR",
        kinds.checkpoint_options(published=True),
        kinds.data_options(),
        kinds.image_options(),
        kinds.feature_options(),
    )
    add = parser.add_argument
    add("--out", type=kinds.output_folder, help="folder for results.json")
    number = kinds.whole_number(1)
    add("-k", "--k", type=number, nargs="+", default=[20], help="neighbours; knn_top1: the first")
    page = "write a page with the accuracies and some nearest neighbours"
    add("--report", metavar="FILE.html", type=kinds.output_file, help=page)
    temperature = "temperature of the votes"
    add("--temperature", type=kinds.positive_number, default=0.07, help=temperature)
    features = "file of embed, NAME.npz: read if it exists, or else written; a stopped one resumes"
    add("--features", type=kinds.npz_file, help=features)
    add("--no-untrained", dest="untrained", action="store_false", help="measure only the trunk")
    return parser.parse_args(arguments)
