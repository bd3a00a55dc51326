"""``pirl-plugin embed``: a file of a checkpoint's features of any images."""

from __future__ import annotations

import argparse

from pirl_plugin.system import arguments as kinds
from pirl_plugin.system.failures import check_name
from pirl_plugin.system.files import locked_file


def main(arguments: list[str]) -> None:
    """Run the command: write the features, and name the images that cannot be read."""
    options = _parse(arguments)
    from pirl_plugin.checkpoints.classifier import read_classifier
    from pirl_plugin.evaluation.feature_file import FeatureFile, describe_features, fill
    from pirl_plugin.evaluation.features import load_network
    from pirl_plugin.images.classes import NoLabels
    from pirl_plugin.images.columns import Columns
    from pirl_plugin.images.labelled import joined_labels
    from pirl_plugin.images.opening import open_source
    from pirl_plugin.models.trunks import LAST

    trunk = load_network(options, options.device)
    columns = Columns(options.image_column, options.label_column)
    source = open_source(options.data, columns=columns)
    splits = {"": source}
    try:
        names, _ = joined_labels(splits)
        classes = f"{len(names)} classes"
    except NoLabels as reason:
        classes = f"unlabeled ({reason})"
    print(f"images: {source.summary()}, {classes}")

    classifier = read_classifier(options.checkpoint)
    if classifier is not None:
        options.layer = options.layer or classifier.layer
        check_name("--layer", options.layer, [classifier.layer])
        print(f"the classifier of {classifier.layer} has {len(classifier.classes)} classes")
    layer = options.layer or LAST
    check_name("--layer", layer, trunk.layers)
    with locked_file(options.out, "--out"):
        description = describe_features(options, trunk.network_config, splits)
        file = FeatureFile(options.out, description, options.data, splits, classifier)
        fill([file], [trunk], layer, options.batch, options.workers)
    for name in file.unreadable_files():
        print(f"unreadable, left out: {name}")
    print(f"{options.out}: features of {int(file.readable.sum()):,} images, of the layer {layer}")


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
