"""``pirl-plugin knn``: the weighted kNN classifier on a checkpoint's frozen features."""

from __future__ import annotations

import argparse
import hashlib
from functools import partial
from typing import Any

from pirl_plugin import arguments as kinds
from pirl_plugin.failures import Refused
from pirl_plugin.files import write_json


def main(arguments: list[str]) -> None:
    """Run the command: print the accuracies, and write ``results.json`` into ``--out``."""
    options = _parse(arguments)
    results = evaluate_knn(options)
    known = f", untrained {results['untrained_top1']:.2f} %" if options.untrained else ""
    print(
        f"kNN top-1 {results['knn_top1']:.2f} % (k = {results['k']}; most frequent class "
        f"{results['chance_top1']:.2f} %{known}; {results['train_images']} images of "
        f"{results['classes']} classes, {results['test_images']} tested, "
        f"{results['unreadable']} unreadable)"
    )
    if len(results["top1_by_k"]) > 1:
        print("top-1 by k: " + ", ".join(f"{k}: {v} %" for k, v in results["top1_by_k"].items()))
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        write_json(options.out / "results.json", results)


def evaluate_knn(options: argparse.Namespace) -> dict[str, Any]:
    """Measure; return the content of ``results.json``, with ``knn_top1`` in percent (first k).

    Raises:
        FileNotFoundError: the checkpoint or the folder of images does not exist.
        ValueError: train and val have different classes or only one, or no image can be read.
    """
    import numpy as np
    import torch
    from torch.utils.data import ConcatDataset

    from pirl_plugin.checkpoints.load import load_trunk
    from pirl_plugin.evaluation.features import (
        Crops,
        extract_features,
        labelled_sources,
        store_features,
    )
    from pirl_plugin.evaluation.knn import FeatureRows, find_neighbors, vote
    from pirl_plugin.models.trunks import untrained

    device = torch.device(options.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    trunk = load_trunk(options.checkpoint, **kinds.trunk_options(options))
    preprocessing = trunk.preprocessing.with_options(options.size, options.mean, options.std)
    trunks = [trunk, untrained(trunk)] if options.untrained else [trunk]
    size = preprocessing.size
    train, test = labelled_sources(options.data)
    print(f"crops of {train.path} and {test.path}: {preprocessing}", flush=True)
    networks = [each.to(device) for each in trunks]
    images = [Crops(train, size), Crops(test, size)]
    crops: ConcatDataset[tuple[torch.Tensor, bool]] = ConcatDataset(images)
    how = {"batch": options.batch, "workers": options.workers}
    how["normalize"] = preprocessing.normalize
    if options.features is None:
        features, readable = extract_features(networks, crops, **how)
        opened = features.numpy
    else:
        written, paths = options.checkpoint.stat(), "\0".join([*train.paths(), *test.paths()])
        described = {
            "checkpoint": [str(options.checkpoint.resolve()), written.st_size, written.st_mtime_ns],
            "network": [options.trunk, options.timm, dict(options.timm_option), len(trunks)],
            "mean and std": [*preprocessing.mean, *preprocessing.std],
            "list of images": hashlib.sha256(paths.encode(errors="surrogateescape")).hexdigest(),
            "size": size,
        }
        readable = store_features(options.features, described, networks, crops, **how)
        opened = partial(np.load, options.features, mmap_mode="r")
    numbers = torch.arange(len(readable))
    known = numbers[readable & (numbers < len(train))]
    tested = numbers[readable & (numbers >= len(train))]
    if not (len(known) and len(tested)):
        raise Refused(f"--data = {options.data}: expected images that can be read, found none")
    train_labels = torch.from_numpy(train.labels())[known]
    test_labels, ks = torch.from_numpy(test.labels())[tested - len(train)], options.k
    accuracies = []
    for number in range(len(trunks)):
        gallery, queries = (FeatureRows(opened, number, each) for each in (known, tested))
        rows, cosines = find_neighbors(queries, gallery, max(ks), device=device)
        votes = (train_labels, test_labels, options.temperature)
        accuracies.append([round(vote(rows[:, :k], cosines[:, :k], *votes), 2) for k in ks])
    most = train_labels.mode().values
    return {
        "benchmark": "knn",
        "knn_top1": accuracies[0][0],
        "top1_by_k": dict(zip(map(str, ks), accuracies[0], strict=True)),
        "chance_top1": round(100 * float((test_labels == most).float().mean()), 2),
        "untrained_top1": accuracies[1][0] if len(trunks) > 1 else None,
        "k": min(ks[0], len(known)),
        "temperature": options.temperature,
        "checkpoint": str(options.checkpoint.resolve()),
        "data": str(options.data.resolve()),
        "size": size,
        "classes": len(train_labels.unique()),  # without empty folders
        "train_images": len(known),
        "test_images": len(tested),
        "unreadable": int((~readable).sum()),
    }


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="pirl-plugin knn",
        description="Measure a k-nearest-neighbour classifier on a checkpoint's frozen features, "
        "and an untrained network for comparison.\nExample: "
        "pirl-plugin knn --checkpoint runs/mine/checkpoint.torch --data DIR",
        formatter_class=kinds.HelpFormatter,
    )
    kinds.add_checkpoint_options(parser)
    kinds.add_image_options(parser)
    kinds.add_compute_options(parser)
    add, count = parser.add_argument, kinds.whole_number(1)
    data = "folder with train and val: class folders, tars, Hugging Face data sets, or lists "
    add("--data", type=kinds.user_path, required=True, help=f"{data}train.csv, val.csv")
    add("--out", type=kinds.output_folder, help="folder for results.json")
    add("-k", "--k", type=count, nargs="+", default=[20], help="neighbours; knn_top1: the first")
    add("--temperature", type=float, default=0.07, help="temperature of the votes")
    add("--features", type=kinds.user_path, help=".npy file for the features; resumes from it")
    add("--no-untrained", dest="untrained", action="store_false", help="measure only the trunk")
    return parser.parse_args(arguments)
