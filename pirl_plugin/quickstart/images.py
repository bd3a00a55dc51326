"""The quickstart's images: folders, and features from each network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from pirl_plugin.evaluation.features import collect, compute_features
from pirl_plugin.evaluation.layer_comparison import LayerComparison, compare_layers
from pirl_plugin.evaluation.logistic import held_out_splits
from pirl_plugin.evaluation.pictures import PageImages, choose_display, page_images
from pirl_plugin.images.classes import NO_CLASS
from pirl_plugin.images.folders import FolderSource, class_folders, find_splits
from pirl_plugin.images.labeled import LabeledImages, open_labeled
from pirl_plugin.images.source import ImageSource, evenly_spaced
from pirl_plugin.models.trunks import AnyTrunk
from pirl_plugin.system.failures import check

IMAGE_SIZE = 64
"""Image view size in ``pretrain/pirl/quick_jigsaw``, in pixels."""
_UNLABELED = 2000  # images to search for neighbors if there are no classes


@dataclass(frozen=True)
class Data:
    """The images.

    Attributes:
        train: training images.
        labeled: training and test images from the same classes; None: measure no accuracy.
    """

    train: ImageSource
    labeled: LabeledImages | None = None


@dataclass(frozen=True)
class Evaluated:
    """Images, and features from each network.

    Attributes:
        images: N training images and then M test images; without labels, only training images.
        num_train: N.
        features: checkpoint name → float16 ``(N + M, D)``, pooled res5.
        labels: int64 ``(N + M,)``, the images' classes; None without labels.
        layers: the layer comparison; None without labels.
    """

    images: PageImages
    num_train: int
    features: dict[str, Tensor]
    labels: Tensor | None = None
    layers: LayerComparison | None = None


def find_data(folder: Path) -> Data:
    """Find ``train/CLASS/*`` and ``val/CLASS/*``, class folders, or a folder with images.

    Raises:
        ValueError: there are fewer than two images, no class has two, or ``val`` has different
            classes.
    """
    splits = find_splits(folder)
    train = folder if splits is None else splits[0]
    if len(class_folders(train)) > 1:
        images = open_labeled(folder)
        labels = images.train_labels
        held_out_splits(labels[labels != NO_CLASS])  # refuse too few images before training
        return Data(images.train, images)
    source = FolderSource(train)
    check("images", len(source), len(source) > 1, "at least two for pre-training")
    return Data(source)


def evaluate(data: Data, networks: Mapping[str, AnyTrunk], titles: Sequence[str]) -> Evaluated:
    """Compute pooled features and, for labeled images, compare networks layer by layer.

    Args:
        data: the images; without labels, at most 2,000 of them are used, evenly spaced.
        networks: checkpoint name → network.
        titles: the networks' names in the layer comparison.
    """
    trunks = list(networks.values())
    config = trunks[0].network_config
    display = choose_display(data.train, config.reading)
    if data.labeled is None:
        rows = evenly_spaced(len(data.train), _UNLABELED)
        collected = collect(compute_features(trunks, data.train, config, rows, workers=0))
        features = dict(zip(networks, collected.features, strict=True))
        readable_rows = torch.tensor(rows)[collected.readable].tolist()
        images = page_images(data.train, readable_rows, display)
        return Evaluated(images, len(readable_rows), features)
    named = dict(zip(titles, trunks, strict=True))
    compared, measured = compare_layers(named, data.labeled, workers=0)
    return Evaluated(
        measured.show(display),
        measured.num_train,
        dict(zip(networks, measured.features, strict=True)),
        measured.labels,
        compared,
    )
