"""``pirl-plugin embed``: save features and predicted classes for any images."""

from __future__ import annotations

import argparse
import os
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from pirl_plugin.system import arguments
from pirl_plugin.system.failures import check_name
from pirl_plugin.system.files import locked_file, remove
from pirl_plugin.system.loader import prepare_workers
from pirl_plugin.system.text import printable, truncate

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from pirl_plugin.checkpoints.classifier import Classifier
    from pirl_plugin.evaluation.features import Batch
    from pirl_plugin.evaluation.request import Request
    from pirl_plugin.images.source import ImageSource
    from pirl_plugin.models.trunks import AnyTrunk

_MOST_NAMES = 30  # of classes


def main(argv: list[str]) -> None:
    """Write the file, and print unreadable images."""
    options = _parse(argv)
    prepare_workers("pirl_plugin.evaluation.crops", options.workers)
    import numpy as np

    from pirl_plugin.evaluation.embed_report import write_report
    from pirl_plugin.evaluation.feature_gallery import Gallery, real_paths
    from pirl_plugin.evaluation.feature_store import OWN_FILE, identify_images, read_features
    from pirl_plugin.evaluation.page import open_report
    from pirl_plugin.evaluation.pictures import page_images
    from pirl_plugin.evaluation.request import Request
    from pirl_plugin.evaluation.sorting import claim_sorted
    from pirl_plugin.images.opening import open_source

    request = Request.of_options(options)
    with locked_file(options.out, "--out"):
        source = open_source(options.data, columns=request.columns)
        trunk = request.load_network(source)
        print(f"images: {source.summary()}, {_describe_labels(source)}")
        layer, classifier = _choose_layer(request)
        report = open_report(options.report, options.show, source, request.weights, trunk)
        if options.sort_into is not None:
            claim_sorted(options.sort_into, source, classifier, options.min_probability)
        network = request.identify_features(trunk, layer)
        gallery = None if options.nearest is None else Gallery(options.nearest, network)
        identity = {**network, **identify_images(source)}
        parts = options.out.with_name(f"{options.out.name}.unfinished")
        if options.out.exists():
            _, computed = read_features(options.out, identity, OWN_FILE)
        elif gallery is not None and {**gallery.identity, **identity} == gallery.identity:
            computed = gallery.computed
        else:
            computed = _compute(request, parts, identity, source, trunk)
        (features,) = computed.features
        rows = computed.readable.nonzero()[:, 0].tolist()
        columns: dict[str, NDArray[Any]] = {}
        if classifier is not None:
            predicted, probability = classifier.predict(features)
            columns["predicted"] = np.array(classifier.classes)[predicted]
            columns["probability"] = probability.numpy()
        if gallery is not None:
            columns |= gallery.find_nearest(real_paths(source, rows), features)

        _write(options, identity, source, computed, columns)
        remove(parts)
        if options.sort_into is not None:
            _sort(options, source, rows, columns)
        print(f"{options.out}: {len(rows):,} images, layer {layer}")
        if report is not None:
            pictures = page_images(source, rows, report.display)
            if classifier is not None:
                pictures = pictures.with_predictions(
                    slice(None), predicted, probability, classifier.classes
                )
            write_report(report, pictures, features, computed.digests, layer)


def _describe_labels(source: ImageSource) -> str:
    """Return the number of classes and their names, or ``unlabeled``."""
    classes = _classes(source)
    if not classes:
        return "unlabeled"
    return f"{len(classes)} classes: {truncate(classes, _MOST_NAMES)}"


def _classes(source: ImageSource) -> list[str]:
    """Return the class names; none for unlabeled images."""
    from pirl_plugin.images.classes import NoLabels

    with suppress(NoLabels):
        return source.classes
    return []


def _choose_layer(request: Request) -> tuple[str, Classifier | None]:
    """Return the layer to take features from, and the checkpoint's classifier on it, if any."""
    from pirl_plugin.checkpoints.classifier import read_classifier
    from pirl_plugin.models.resnet import LAST

    classifier = read_classifier(request.checkpoint)
    if classifier is None:
        return request.layer or LAST, None
    if request.layer is not None:
        check_name("--layer", request.layer, [classifier.layer])
    print(f"the classifier on {classifier.layer} has {len(classifier.classes)} classes")
    return classifier.layer, classifier


def _compute(
    request: Request, parts: Path, identity: dict[str, Any], source: ImageSource, trunk: AnyTrunk
) -> Batch:
    """Compute the features, except for those that a stopped command stored in ``parts``."""
    import torch

    from pirl_plugin.evaluation.feature_store import store_batches
    from pirl_plugin.evaluation.features import collect, compute_features
    from pirl_plugin.models.trunks import layer_features
    from pirl_plugin.system.watcher import resumable

    compute = partial(
        compute_features,
        partial(layer_features, trunk, names=[identity["layer"]]),
        source,
        trunk.network_config,
        batch=request.batch,
        workers=request.workers,
        device=next(trunk.parameters()).device,
    )
    count = len(source)
    with resumable():
        return collect(store_batches(parts, identity, count, compute), count, torch.float32)


def _write(
    options: argparse.Namespace,
    identity: dict[str, Any],
    source: ImageSource,
    computed: Batch,
    columns: dict[str, NDArray[Any]],
) -> None:
    """Write ``--out``, and print unreadable images."""
    import numpy as np

    from pirl_plugin.evaluation.feature_gallery import real_paths, stamps_of
    from pirl_plugin.evaluation.feature_store import write_features
    from pirl_plugin.evaluation.feature_tables import write_table
    from pirl_plugin.evaluation.pictures import label_names

    prefix = os.path.join(options.data, "")
    names = np.array([path.removeprefix(prefix) for path in source.paths()], np.str_)
    readable = computed.readable.numpy()
    files = names[readable]
    unreadable = names[~readable]
    classes = _classes(source)
    labels = source.labels()[readable] if classes else None
    if options.out.suffix != ".npz":
        table = {"file": files}
        if labels is not None:
            table |= {"label": labels, "class": label_names(classes, labels)}
        table |= columns
        features = None if options.no_features else computed.features[0].numpy()
        write_table(options.out, table, features)
    else:
        arrays = {**columns, "files": files, "unreadable": unreadable}
        if labels is not None:
            arrays |= {"labels": labels, "classes": np.array(classes)}
        paths = real_paths(source, np.flatnonzero(readable).tolist())
        arrays |= {"paths": paths, "stamps": stamps_of(paths)}
        write_features(options.out, identity, computed, arrays)
    for name in unreadable.tolist():
        print(f"unreadable, skipped: {printable(name)}")


def _sort(
    options: argparse.Namespace,
    source: ImageSource,
    rows: list[int],
    columns: dict[str, NDArray[Any]],
) -> None:
    """Link the images into folders, by predicted class."""
    import numpy as np

    from pirl_plugin.evaluation.sorting import UNSURE, sort_images

    is_sure = columns["probability"] >= options.min_probability
    folders = np.where(is_sure, columns["predicted"], UNSURE)
    sort_images(options.sort_into, source, rows, folders.tolist())
    print(f"{options.sort_into}: {len(rows):,} images in one folder per class")


def _parse(argv: list[str]) -> argparse.Namespace:
    data = "images, labeled or not: a folder, a list, tars or a Hugging Face data set"
    parser = arguments.command_parser(
        "embed",
        "Save a checkpoint's features for any images to a file and, if it has a classifier, the "
        "predicted classes. Run a stopped command again to resume it.",
        "--checkpoint runs/mine/checkpoint.torch --data DIR --out features.npz",
        {"--data": dict(metavar="PATH", type=arguments.input_path, required=True, help=data)},
        arguments.FEATURES,
        arguments.LAYER,
        weights=arguments.WEIGHTS,
    )
    add = parser.add_argument
    out = "NAME.npz (features, files, labels) or NAME.csv"
    file = arguments.OutputFile((".npz", ".csv"))
    add("--out", type=file, required=True, help=out)
    no_features = (
        "omit features from a table, and sort it by predicted class and probability, or by "
        "similarity"
    )
    add("--no-features", action="store_true", help=no_features)
    sort_into = "link each image into DIR/CLASS by predicted class (copies where links fail)"
    add("--sort-into", metavar="DIR", type=arguments.output_folder, help=sort_into)
    unsure = "with --sort-into, link less probable images into DIR/unsure (default: 0)"
    add("--min-probability", metavar="P", type=float, default=0.0, help=unsure)
    nearest = (
        "add the nearest image in a file from embed, and its cosine similarity; for images in that "
        "file, the nearest other image"
    )
    add("--nearest", metavar="NAME.npz", type=arguments.input_file, help=nearest)
    options = parser.parse_args(argv)
    if options.out.exists() and options.out.suffix != ".npz":
        parser.error(f"--out: {options.out} exists; choose another name, or delete it")
    if not 0 <= options.min_probability <= 1:
        parser.error(f"--min-probability: {options.min_probability}: expected 0 to 1")
    if options.min_probability > 0 and options.sort_into is None:
        parser.error("--min-probability needs --sort-into")
    if options.no_features and options.out.suffix == ".npz":
        parser.error("--no-features: the file name must end in .csv")
    return options
