"""``pirl-plugin embed``: a file of a checkpoint's features of any images."""

from __future__ import annotations

import argparse

from pirl_plugin.system import arguments as kinds


def main(arguments: list[str]) -> None:
    """Run the command: write the features, and name the images that cannot be read."""
    options = _parse(arguments)
    from pirl_plugin.evaluation.command_network import describe_features, load_network
    from pirl_plugin.evaluation.feature_file import FeatureFile, fill
    from pirl_plugin.evaluation.labelled_images import check_same_classes, labels_of, open_splits

    trunk = load_network(options)
    splits = open_splits(options.data)
    has_classes = [labels_of(source) is not None for source in splits.values()]
    for source, known in zip(splits.values(), has_classes, strict=True):
        classes = "with classes" if known else "without classes"
        print(f"{len(source):,} images of {source.path}, {classes}")
    if len(splits) == 2 and all(has_classes):  # a label in the file has one meaning
        check_same_classes(options.data, *splits.values())
    print(f"crops of {trunk.preprocessing}", flush=True)

    file = FeatureFile(options.out, describe_features(options, trunk, splits), options.data, splits)
    preprocessing = trunk.preprocessing
    fill(
        [file],
        [trunk],
        splits,
        preprocessing.size,
        batch=options.batch,
        workers=options.workers,
        normalize=preprocessing.normalize,
    )
    for name in file.unreadable_files():
        print(f"unreadable, left out: {name}")
    print(f"{options.out}: features of {int(file.readable.sum()):,} images")


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="pirl-plugin embed",
        description="Write a checkpoint's features of any images to a file. A stopped command "
        "resumes.\nExample: pirl-plugin embed --checkpoint runs/mine/checkpoint.torch --data DIR "
        "--out features.npz",
        formatter_class=kinds.HelpFormatter,
    )
    kinds.add_checkpoint_options(parser)
    data = "a folder of images, a list, tars or a Hugging Face data set; with or without classes"
    parser.add_argument("--data", type=kinds.user_path, required=True, help=data)
    out = "NAME.npz (features, files, labels), NAME.csv or NAME.parquet"
    parser.add_argument("--out", type=kinds.user_path, required=True, help=out)
    kinds.add_image_options(parser)
    kinds.add_compute_options(parser)
    return parser.parse_args(arguments)
