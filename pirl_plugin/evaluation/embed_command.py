"""``pirl-plugin embed``: save features and predicted classes for any images."""

from __future__ import annotations

import argparse
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pirl_plugin.system import arguments
from pirl_plugin.system.failures import Refused, check_name
from pirl_plugin.system.files import locked_file
from pirl_plugin.system.loader import prepare_workers
from pirl_plugin.system.text import printable, truncate

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from pirl_plugin.checkpoints.classifier import Classifier
    from pirl_plugin.evaluation.feature_gallery import Gallery
    from pirl_plugin.evaluation.feature_store import FeatureFile
    from pirl_plugin.evaluation.request import Request
    from pirl_plugin.images.source import ImageSource

_MOST_NAMES = 30  # of classes


def main(argv: list[str]) -> None:
    """Write the file, and print unreadable images."""
    options = _parse(argv)
    prepare_workers("pirl_plugin.evaluation.crops", options.workers)
    import torch

    from pirl_plugin.evaluation.embed_report import write_report
    from pirl_plugin.evaluation.feature_gallery import Gallery
    from pirl_plugin.evaluation.feature_store import FeatureFile
    from pirl_plugin.evaluation.features import fill
    from pirl_plugin.evaluation.pictures import page_images
    from pirl_plugin.evaluation.report import open_report
    from pirl_plugin.evaluation.request import Request
    from pirl_plugin.images.opening import open_source
    from pirl_plugin.images.source import content_stamp

    request = Request.of_options(options)
    with locked_file(options.out, "--out"):
        source = open_source(options.data, columns=request.columns)
        trunk = request.load_network(source)
        print(f"images: {source.summary()}, {_labels(source)}")
        layer, classifier = _choose_layer(request)
        report = open_report(options.report, options.show, source, request.weights, trunk)
        if options.sort_into is not None:
            _claim_folder(options, source, classifier)
        if options.out.suffix == ".parquet":
            import pyarrow  # noqa: F401 (fails before the features are computed)

        description = request.identify_features(trunk, layer)
        gallery = None if options.nearest is None else Gallery(options.nearest, description)
        # A complete file is reused only with an equal identity, so all options that change its
        # content belong in it.
        stamp = None if options.nearest is None else content_stamp(options.nearest)
        file = FeatureFile(options.out, {**description, "--nearest": stamp}, source, options.data)
        if gallery is not None:
            gallery.fill(file)
        fill(file, trunk, layer, request.batch, request.workers)
        features = torch.from_numpy(file.features)
        digests = torch.from_numpy(file.digests)
        columns = _columns(features, file.paths, classifier, gallery)

        if not file.columns or not file.columns.issuperset(columns):
            _write(file, features, columns, options.no_features)
        if options.sort_into is not None:
            _sort(file, columns, options.sort_into, options.min_probability)
        for name in file.unreadable_names:
            print(f"unreadable, skipped: {printable(name)}")
        print(f"{options.out}: {len(features):,} images, layer {layer}")
        if report is not None:
            images = page_images(source, file.rows, report.display)
            if classifier is not None:
                predictions = classifier.predict(features)
                images = images.with_predictions(slice(None), *predictions, classifier.classes)
            write_report(report, images, features, digests, layer)


def _labels(source: ImageSource) -> str:
    """Return the number of classes and their names, or ``unlabeled``."""
    from pirl_plugin.images.classes import NoLabels

    with suppress(NoLabels):
        if source.classes:
            return f"{len(source.classes)} classes: {truncate(source.classes, _MOST_NAMES)}"
    return "unlabeled"


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


def _claim_folder(
    options: argparse.Namespace, source: ImageSource, classifier: Classifier | None
) -> None:
    """Check that images can be sorted, and claim ``--sort-into``."""
    from pirl_plugin.evaluation.sorting import UNSURE, check_folder_names, claim_sorted

    if classifier is None:
        raise Refused(
            "--sort-into needs predicted classes. Pass a classifier.torch from pirl-plugin "
            "linear or finetune as --checkpoint."
        )
    check_folder_names(classifier.classes)
    if options.min_probability > 0 and UNSURE in classifier.classes:
        raise Refused(
            f"The classifier has a class {UNSURE}, which --min-probability needs for uncertain "
            f"images. Rename the class, or omit the option."
        )
    claim_sorted(options.sort_into, source, classifier)


def _columns(
    features: Tensor,
    paths: NDArray[np.str_],
    classifier: Classifier | None,
    gallery: Gallery | None,
) -> dict[str, NDArray[Any]]:
    """Return predictions and nearest images for features ``(N, D)``, each ``(N,)``."""
    import numpy as np

    columns: dict[str, NDArray[Any]] = {}
    if classifier is not None:
        index, probability = classifier.predict(features)
        columns["predicted"] = np.array(classifier.classes)[index]
        columns["probability"] = probability.numpy()
    if gallery is not None:
        columns |= gallery.find_nearest(paths, features)
    return columns


def _write(
    file: FeatureFile, features: Tensor, columns: dict[str, NDArray[Any]], no_features: bool
) -> None:
    """Write ``--out``; without features, order rows by class and probability, or similarity."""
    import numpy as np

    if not no_features:
        file.write({**columns, "features": features.numpy()})
        return
    order = None
    if "predicted" in columns:
        order = np.lexsort((-columns["probability"], columns["predicted"]))
    elif "similarity" in columns:
        order = np.argsort(-columns["similarity"], kind="stable")
    file.write(columns, order)


def _sort(
    file: FeatureFile, columns: dict[str, NDArray[Any]], folder: Path, min_probability: float
) -> None:
    """Link the images into folders, by predicted class."""
    import numpy as np

    from pirl_plugin.evaluation.sorting import UNSURE, sort_images

    is_sure = columns["probability"] >= min_probability
    folders = np.where(is_sure, columns["predicted"], UNSURE)
    sort_images(folder, file.source, file.rows, folders.tolist())
    print(f"{folder}: {len(file.rows):,} images in one folder per class")


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
    out = "NAME.npz (features, files, labels), NAME.csv or NAME.parquet"
    file = arguments.OutputFile((".npz", ".csv", ".parquet"))
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
        parser.error("--no-features: the file name must end in .csv or .parquet")
    return options
