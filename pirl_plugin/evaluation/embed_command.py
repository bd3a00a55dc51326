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
    from pirl_plugin.evaluation.layer_comparison import compare_layers
    from pirl_plugin.images.classes import NO_CLASS, NoLabels
    from pirl_plugin.images.columns import Columns
    from pirl_plugin.images.opening import LabelledImages, joined_labels, open_splits
    from pirl_plugin.models.trunks import LAST, untrained

    trunk = load_network(options, options.device)
    splits = open_splits(options.data, Columns(options.image_column, options.label_column))
    images: LabelledImages | None = None
    try:
        names, labels = joined_labels(splits)
        classes = f"with {len(names)} classes"
        if len(splits) == 2:
            train, test = splits.values()
            both = LabelledImages(train, test, names, labels)
            parts = (both.train_labels, both.test_labels)
            if all((part != NO_CLASS).any() for part in parts):
                images = both
    except NoLabels as reason:
        classes = f"without classes: {reason}"
    for source in splits.values():
        print(f"{len(source):,} images of {source.path}, {classes}")
    print(f"crops of {trunk.preprocessing}", flush=True)

    classifier = read_classifier(options.checkpoint)
    if classifier is not None:
        options.layer = options.layer or classifier.layer
        check_name("--layer", options.layer, [classifier.layer])
        print(f"the classifier of {classifier.layer} has {len(classifier.classes)} classes")
    layer = options.layer or LAST
    check_name("--layer", layer, trunk.layers)
    with locked_file(options.out, "--out"):
        description = describe_features(options, trunk.preprocessing, splits)
        file = FeatureFile(options.out, description, options.data, splits, classifier)
        if images is not None and options.layer is None and file.num_done == 0:
            networks = {"trained": trunk, "untrained": untrained(trunk).to(options.device)}
            compared = compare_layers(
                networks,
                images,
                batch=options.batch,
                workers=options.workers,
                folder=options.out.parent,
            )
            print(compared.table(), flush=True)
        fill([file], [trunk], layer, options.batch, options.workers)
    for name in file.unreadable_files():
        print(f"unreadable, left out: {name}")
    print(f"{options.out}: features of {int(file.readable.sum()):,} images, of the layer {layer}")


def _parse(arguments: list[str]) -> argparse.Namespace:
    data = "a folder of images, a list, tars or a Hugging Face data set; with or without classes"
    parser = kinds.command_parser(
        "embed",
        "Write a checkpoint's features of any images to a file and, if it has a classifier, the "
        "predicted classes. A stopped command resumes.",
        "--checkpoint runs/mine/checkpoint.torch --data DIR --out features.npz",
        kinds.NETWORK,
        {"--data": {**kinds.LABELLED_DATA["--data"], "help": data}},
        kinds.IMAGES,
        kinds.FEATURES,
        weights=kinds.WEIGHTS,
    )
    out = "NAME.npz (features, files, labels), NAME.csv or NAME.parquet"
    file = kinds.OutputFile((".npz", ".csv", ".parquet"))
    parser.add_argument("--out", type=file, required=True, help=out)
    return parser.parse_args(arguments)
