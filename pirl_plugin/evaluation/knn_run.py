"""The weighted kNN classifier on a checkpoint's frozen features, from files to a percentage."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, TypedDict

import torch

from pirl_plugin.checkpoints.load import load_trunk
from pirl_plugin.checkpoints.training_run import image_size_of, run_config
from pirl_plugin.evaluation.image_folder import (
    LabelledCrops,
    labelled_features,
    labelled_folders,
    refuse_shards,
    val_folder,
)
from pirl_plugin.evaluation.knn import knn_accuracy
from pirl_plugin.evaluation.pretext_checkpoint import normalization_of

_log = logging.getLogger(__name__)


class KNNResults(TypedDict):
    """What ``results.json`` holds: ``knn_top1`` in percent, and what it was measured on."""

    benchmark: str
    knn_top1: float
    k: int
    temperature: float
    checkpoint: str
    data: str
    size: int
    classes: int
    train_images: int
    test_images: int
    unreadable: int


def evaluate_knn(
    checkpoint: Path,
    data: Path | None = None,
    *,
    k: int = 20,
    temperature: float = 0.07,
    size: int | None = None,
    batch: int = 128,
    workers: int | None = None,
    device: str | None = None,
    trust_pickle: bool = False,
) -> KNNResults:
    """Measure.

    Args:
        checkpoint: of a pre-training, or another file of weights of a ResNet or of timm.
        data: folder with ``train/CLASS/*`` and ``val/CLASS/*``; None: that of the run.
        k: neighbours.
        temperature: of their votes.
        size: side of the images, pixels; None: that of the run.
        batch: images at a time.
        workers: processes that read them; None: by the number of cores.
        device: None: a GPU where there is one.
        trust_pickle: run the code in the file if torch's safe loading refuses it.

    Returns:
        ``knn_top1`` in percent, and what it was measured on.

    Raises:
        FileNotFoundError: the checkpoint or a folder does not exist.
        ValueError: the checkpoint holds no whole ResNet, its run has no image size and none is
            given, train and val hold different classes or a single one, or shards, or no image
            can be read.
    """
    where = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    trunk = load_trunk(checkpoint, trust_pickle).to(where)
    config = run_config(checkpoint)
    size = size or _run_size(config, checkpoint)
    root = data or _run_data(config, checkpoint)
    folders = labelled_folders(root)
    for folder in folders:
        refuse_shards(folder)
    print(f"{size}-px crops of {folders[0]} and {folders[1]}", flush=True)
    train, val = (LabelledCrops(folder, size) for folder in folders)
    odd = sorted(set(train.classes) ^ set(val.classes))
    if odd:
        raise ValueError(
            f"--data = {root}: expected the same classes in {folders[0].name} and "
            f"{folders[1].name}, which have {len(train.classes)} and {len(val.classes)}; "
            f"'{odd[0]}' is in one alone"
        )
    if len(train.classes) < 2:
        raise ValueError(
            f"--data = {root}: expected at least two classes in {folders[0].name}, and found "
            f"'{train.classes[0]}' alone, of which every classifier is right"
        )
    how = (batch, workers, where, normalization_of(config))
    train_features, train_labels, bad_train = labelled_features(
        trunk, train, *how, "training images"
    )
    test_features, test_labels, bad_test = labelled_features(trunk, val, *how, "test images")
    accuracy = knn_accuracy(
        train_features.to(where),
        train_labels,
        test_features,
        test_labels,
        k=k,
        temperature=temperature,
    )
    return {
        "benchmark": "knn",
        "knn_top1": round(accuracy, 2),
        "k": min(k, len(train_features)),
        "temperature": temperature,
        "checkpoint": str(checkpoint.resolve()),
        "data": str(root.resolve()),
        "size": size,
        "classes": len(train_labels.unique()),  # a folder may be empty
        "train_images": len(train_features),
        "test_images": len(test_features),
        "unreadable": bad_train + bad_test,
    }


def _run_size(config: dict[str, Any] | None, checkpoint: Path) -> int:
    """Side of the images of the run, pixels; the paper's 224 where the run is not known.

    Raises:
        ValueError: it was trained on patches alone, of another size than the paper's.
    """
    size = image_size_of(config)
    transforms = config["DATA"]["TRAIN"]["TRANSFORMS"] if config else []
    patch = next((t.get("patch_size", 64) for t in transforms if t["name"] == "PredictJigsaw"), 64)
    if size is None and patch != 64:
        raise ValueError(
            f"--size is not given, and the run of {checkpoint} was trained on {patch}-px patches "
            f"alone: expected the side of the images; give that of the runs to compare with, such "
            f"as --size 64 beside quick_jigsaw"
        )
    if config is None:
        _log.warning(
            f"{checkpoint} has no train_config.yaml beside it, which would say how large its "
            f"images were: crops of 224 px are taken; give --size"
        )
    return size or 224


def _run_data(config: dict[str, Any] | None, checkpoint: Path) -> Path:
    """The folder above the images that the run was trained on, if it has test images too.

    Raises:
        ValueError: there is none, or its path is relative to a folder that is not known.
    """
    paths = (config["DATA"]["TRAIN"].get("DATA_PATHS") or []) if config else []
    for path in map(Path, paths):
        if not path.is_absolute():
            raise ValueError(
                f"--data is not given, and the run of {checkpoint} was trained on {path}, relative "
                f"to the folder that it was started in: expected an absolute path; give "
                f"--data DIR, with train/CLASS/* and val/CLASS/*"
            )
        if path.name == "train" and val_folder(path.parent) is not None:
            return path.parent
    known = (
        f"the run of {checkpoint} was trained on {', '.join(map(str, paths))}"
        if paths
        else (f"no train_config.yaml beside {checkpoint} names any")
    )
    raise ValueError(
        f"--data is not given, and {known}: expected a folder with train/CLASS/* and val/CLASS/*"
    )
