"""The quickstart's images: folders, and features from each network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from pirl_plugin.evaluation.feature_store import gather
from pirl_plugin.evaluation.features import compute_features
from pirl_plugin.evaluation.labeled_features import labeled_features
from pirl_plugin.evaluation.layer_comparison import LayerComparison, compare_layers
from pirl_plugin.evaluation.page import ShownImages
from pirl_plugin.images.classes import NO_CLASS
from pirl_plugin.images.folders import class_folders, find_splits
from pirl_plugin.images.labeled import LabeledImages, open_labeled, save_split
from pirl_plugin.images.opening import FolderSource
from pirl_plugin.images.source import evenly_spaced
from pirl_plugin.models.trunks import LAST, AnyTrunk

IMAGE_SIZE = 64
"""Image view size in ``pretrain/pirl/quick_jigsaw``, in pixels."""
_UNLABELED = 2000  # images to search for neighbors if there are no classes


@dataclass(frozen=True)
class Data:
    """The images.

    Attributes:
        train: folder or list with training images.
        val: folder or list with test images from the same classes; None: measure no accuracy.
        num_train: number of training images.
        labeled: training and test images, if ``val`` is given.
    """

    train: Path
    val: Path | None
    num_train: int
    labeled: LabeledImages | None = None

    @property
    def folder(self) -> Path:
        """Folder with the training images, or with the class folders that they are drawn from."""
        held_out_of = None if self.labeled is None else self.labeled.held_out_of
        return held_out_of or self.train


@dataclass(frozen=True)
class Split(ShownImages):
    """Images from one folder, with their features.

    Attributes:
        features: checkpoint name → float16 ``(N, D)``, pooled res5.
    """

    features: dict[str, Tensor]


def find_data(folder: Path) -> Data:
    """Find ``train/CLASS/*`` and ``val/CLASS/*``, class folders, or a folder with images.

    Raises:
        ValueError: there are fewer than two images, or ``val`` has different classes.
    """
    train, val = find_splits(folder)
    if train is None or val is None:
        train = folder
    if len(class_folders(train)) > 1:
        return _labeled_data(open_labeled(folder))
    return Data(train, None, len(FolderSource(train)))


def save_held_out(data: Data, out: Path) -> Data:
    """Write held-out images as lists, and return these; leave other data unchanged."""
    return data if data.labeled is None else _labeled_data(save_split(data.labeled, out))


def _labeled_data(images: LabeledImages) -> Data:
    return Data(Path(images.train.path), Path(images.test.path), len(images.train), images)


def measure_labeled(
    images: LabeledImages, networks: Mapping[str, AnyTrunk]
) -> tuple[LayerComparison, Split, Split]:
    """Compare networks layer by layer, and return their pooled features.

    Args:
        images: training and test images.
        networks: checkpoint name → network.

    Returns:
        The comparison, and the labeled, readable training and test images.
    """
    trunks = list(networks.values())
    compared = compare_layers(networks, images, workers=0)
    measured = compared.pooled or labeled_features(trunks, [LAST], images, workers=0)
    train_features = {}
    test_features = {}
    for name, (train, test) in zip(networks, measured.features, strict=True):
        train_features[name] = train
        test_features[name] = test
    train_rows = measured.train_rows.tolist()
    test_rows = measured.test_rows.tolist()
    classes = images.classes
    return (
        compared,
        Split(images.train, train_rows, measured.train_labels, classes, train_features),
        Split(images.test, test_rows, measured.test_labels, classes, test_features),
    )


def read_unlabeled(folder: Path, networks: Mapping[str, AnyTrunk]) -> Split:
    """Compute each network's features for at most 2,000 images, evenly spread over a folder."""
    source = FolderSource(folder)
    rows = evenly_spaced(len(source), _UNLABELED)
    trunks = list(networks.values())
    batches = compute_features(trunks, [source], trunks[0].network_config, rows, workers=0)
    gathered = gather(batches)
    readable_rows = torch.tensor(rows)[gathered.readable].tolist()
    labels = torch.full((len(readable_rows),), NO_CLASS)
    features = dict(zip(networks, gathered.features, strict=True))
    return Split(source, readable_rows, labels, [], features)
