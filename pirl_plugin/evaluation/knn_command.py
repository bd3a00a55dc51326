"""``pirl-plugin knn``: the weighted kNN classifier on a checkpoint's frozen features."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from pirl_plugin.evaluation.features import load_trunk
from pirl_plugin.evaluation.image_folder import LabelledCrops, labelled_features
from pirl_plugin.evaluation.knn import knn_accuracy


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
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "results.json").write_text(json.dumps(results, indent=2) + "\n")


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
    train, val = (LabelledCrops(options.data / split, options.size) for split in ("train", "val"))
    odd = sorted(set(train.classes) ^ set(val.classes))
    if odd:
        raise ValueError(
            f"train and val of {options.data} have {len(train.classes)} and {len(val.classes)} "
            f"classes; expected the same, and '{odd[0]}' is in one alone"
        )
    how = (options.batch, options.workers, device)
    train_features, train_labels, bad_train = labelled_features(trunk, train, *how)
    test_features, test_labels, bad_test = labelled_features(trunk, val, *how)
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
        "data": str(options.data.resolve()),
        "classes": len(train.classes),
        "train_images": len(train_features),
        "test_images": len(test_features),
        "unreadable": bad_train + bad_test,
    }


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="pirl-plugin knn", description=__doc__)
    parser.add_argument("--checkpoint", type=Path, required=True, help="any that export reads")
    parser.add_argument("--trust-pickle", action="store_true", help="as in pirl-plugin export")
    parser.add_argument("--data", type=Path, required=True, help="train/<class>/*, val/<class>/*")
    parser.add_argument("--out", type=Path, help="folder for results.json")
    parser.add_argument("--k", type=int, default=20, help="neighbours that vote (default 20)")
    parser.add_argument("--temperature", type=float, default=0.07, help="of votes (default 0.07)")
    parser.add_argument("--size", type=int, default=224, help="side of the crops (default 224)")
    parser.add_argument("--batch", type=int, default=128, help="images at a time (default 128)")
    parser.add_argument("--workers", type=int, default=0, help="processes that decode (default 0)")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", default=device, help=f"here: {device}")
    return parser.parse_args(arguments)
