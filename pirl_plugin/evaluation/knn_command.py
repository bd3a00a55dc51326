"""``pirl-plugin knn``: the weighted kNN classifier on a checkpoint's frozen features."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch

from pirl_plugin.evaluation.features import load_trunk
from pirl_plugin.evaluation.image_folder import (
    LabelledCrops,
    labelled_features,
    labelled_folders,
    test_folder,
)
from pirl_plugin.evaluation.knn import knn_accuracy
from pirl_plugin.evaluation.pretext_model import image_size_of, run_config
from pirl_plugin.utils.outputs import write_json


def main(arguments: list[str]) -> None:
    """Run the command.

    Raises:
        SystemExit: a checkpoint or images that cannot be used.
    """
    options = _parse(arguments)
    try:
        results = evaluate(options)
    except (OSError, ValueError) as error:
        raise SystemExit(f"pirl_plugin: {error}") from None
    print(
        f"kNN top-1 {results['knn_top1']:.2f} % (k = {results['k']}, {results['train_images']} "
        f"images of {results['classes']} classes, {results['test_images']} tested, "
        f"{results['unreadable']} unreadable)"
    )
    if options.out is not None:
        write_json(options.out / "results.json", results)


def evaluate(options: argparse.Namespace) -> dict[str, Any]:
    """Measure.

    Args:
        options: as the command's arguments: ``checkpoint``, ``data``, ``k``, ``temperature``,
            ``size``, ``batch``, ``workers``, ``device`` and ``trust_pickle``.

    Returns:
        ``knn_top1`` in percent, and what it was measured on.

    Raises:
        FileNotFoundError: the checkpoint or a folder does not exist.
        ValueError: the checkpoint holds no whole ResNet, or train and val hold different classes.
    """
    device = torch.device(options.device)
    trunk = load_trunk(options.checkpoint, options.trust_pickle).to(device)
    config = run_config(options.checkpoint)
    size = options.size or image_size_of(config) or 224
    root = options.data or _run_data(config, options.checkpoint)
    folders = labelled_folders(root)
    print(f"{size}-px crops of {folders[0]} and {folders[1]}", flush=True)
    train, val = (LabelledCrops(folder, size) for folder in folders)
    odd = sorted(set(train.classes) ^ set(val.classes))
    if odd:
        raise ValueError(
            f"--data = {root}: expected the same classes in {folders[0].name} and "
            f"{folders[1].name}, which have {len(train.classes)} and {len(val.classes)}; "
            f"'{odd[0]}' is in one alone"
        )
    how = (options.batch, options.workers, device)
    train_features, train_labels, bad_train = labelled_features(
        trunk, train, *how, "training images"
    )
    test_features, test_labels, bad_test = labelled_features(trunk, val, *how, "test images")
    accuracy = knn_accuracy(
        train_features.to(device),
        train_labels,
        test_features,
        test_labels,
        k=options.k,
        temperature=options.temperature,
    )
    return {
        "benchmark": "knn",
        "knn_top1": round(accuracy, 2),
        "k": min(options.k, len(train_features)),
        "temperature": options.temperature,
        "checkpoint": str(options.checkpoint.resolve()),
        "data": str(root.resolve()),
        "size": size,
        "classes": len(train.classes),
        "train_images": len(train_features),
        "test_images": len(test_features),
        "unreadable": bad_train + bad_test,
    }


def _run_data(config: dict[str, Any] | None, checkpoint: Path) -> Path:
    """The folder above the images that the run was trained on, if it has test images too."""
    paths = (config["DATA"]["TRAIN"].get("DATA_PATHS") or []) if config else []
    for path in map(Path, paths):
        if path.name == "train" and test_folder(path.parent) is not None:
            return path.parent
    known = (
        f"the run of {checkpoint} was trained on {', '.join(map(str, paths))}"
        if paths
        else (f"no train_config.yaml beside {checkpoint} names any")
    )
    raise ValueError(
        f"--data is not given, and {known}: expected a folder with train/CLASS/* and val/CLASS/*"
    )


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="pirl-plugin knn",
        description="Measure the top-1 accuracy of a k-nearest-neighbour classifier on the frozen "
        "features of a checkpoint (Wu et al. 2018).",
    )
    add = parser.add_argument
    add("--checkpoint", type=Path, required=True, help="any that pirl-plugin export reads")
    add("--trust-pickle", action="store_true", help="as in pirl-plugin export")
    add(
        "--data",
        type=Path,
        help="folder with train/CLASS/* and val/CLASS/* (or validation/); default: that of the run "
        "which made the checkpoint, from its train_config.yaml",
    )
    add("--out", type=Path, help="folder for results.json")
    add("--k", type=int, default=20, help="neighbours that vote (default: %(default)s)")
    add("--temperature", type=float, default=0.07, help="of the votes (default: %(default)s)")
    add("--size", type=int, help="side of the crops, pixels (default: the run's own, or 224)")
    add("--batch", type=int, default=128, help="images at a time (default: %(default)s)")
    add("--workers", type=int, help="processes that decode (default: by cores and images)")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    add("--device", default=device, help="cpu, cuda or cuda:N (default here: %(default)s)")
    options = parser.parse_args(arguments)
    for name, least in (("size", 1), ("batch", 1), ("workers", 0)):
        value = getattr(options, name)
        if value is not None and value < least:
            parser.error(f"--{name} = {value}: expected {least} or more")
    return options
