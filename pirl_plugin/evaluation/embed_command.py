"""``pirl-plugin embed``: a file of a checkpoint's features of any images."""

from __future__ import annotations

import argparse
from contextlib import suppress

from pirl_plugin.system import arguments as kinds
from pirl_plugin.system.failures import check_name
from pirl_plugin.system.files import locked_file
from pirl_plugin.system.text import printable


def main(arguments: list[str]) -> None:
    """Run the command: write the features, and name the images that cannot be read."""
    options = _parse(arguments)
    from pirl_plugin.checkpoints.classifier import read_classifier
    from pirl_plugin.evaluation.feature_store import FeatureFile, describe_images, predict
    from pirl_plugin.evaluation.features import fill
    from pirl_plugin.evaluation.network_options import identify_features, load_network
    from pirl_plugin.images.classes import NoLabels
    from pirl_plugin.images.columns import Columns
    from pirl_plugin.images.opening import open_source
    from pirl_plugin.models.trunks import LAST

    source = open_source(options.data, columns=Columns(options.image_column, options.label_column))
    num_classes = 0
    with suppress(NoLabels):
        num_classes = len(source.classes)
    labels = f"{num_classes} classes" if num_classes else "unlabeled"
    print(f"images: {source.summary()}, {labels}")
    trunk = load_network(options, options.device)
    classifier = read_classifier(options.checkpoint)
    layer = options.layer or LAST
    if classifier is not None:
        layer = options.layer or classifier.layer
        check_name("--layer", layer, [classifier.layer])
        print(f"the classifier of {layer} has {len(classifier.classes)} classes")
    check_name("--layer", layer, trunk.layers)

    about = {**identify_features(options, trunk, layer), **describe_images(source)}
    with locked_file(options.out, "--out"):
        file = FeatureFile(options.out, about, source, options.data)
        if not file.is_complete:
            fill(file, [trunk], source, layer, options.batch, options.workers)
            features = file.store.features[0]
            columns = {} if classifier is None else predict(classifier, features)
            file.write(columns, {"features": features.numpy()})
    for name in file.unreadable_names():
        print(f"unreadable, left out: {printable(name)}")
    print(f"{options.out}: {layer} features of {int(file.store.readable.sum()):,} images")


def _parse(arguments: list[str]) -> argparse.Namespace:
    data = "images: a folder, a list, tars or a Hugging Face data set, with or without classes"
    parser = kinds.command_parser(
        "embed",
        "Write a checkpoint's features of any images to a file and, if it has a classifier, the "
        "predicted classes. A stopped command resumes.",
        "--checkpoint runs/mine/checkpoint.torch --data DIR --out features.npz",
        kinds.NETWORK,
        {"--data": dict(metavar="PATH", type=kinds.user_path, required=True, help=data)},
        kinds.IMAGES,
        kinds.FEATURES,
        weights=kinds.WEIGHTS,
    )
    out = "NAME.npz (features, files, labels), NAME.csv or NAME.parquet"
    file = kinds.OutputFile((".npz", ".csv", ".parquet"))
    parser.add_argument("--out", type=file, required=True, help=out)
    return parser.parse_args(arguments)
