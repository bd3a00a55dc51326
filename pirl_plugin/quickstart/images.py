"""The quickstart's images: folders, and features from each network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from pirl_plugin.evaluation.features import collect, compute_features
from pirl_plugin.evaluation.labeled_features import labeled_features
from pirl_plugin.evaluation.layer_comparison import LayerComparison, compare_layers
from pirl_plugin.evaluation.logistic import held_out_splits
from pirl_plugin.evaluation.pictures import ShownImages, choose_display
from pirl_plugin.images.classes import NO_CLASS
from pirl_plugin.images.folders import FolderSource, class_folders, find_splits
from pirl_plugin.images.labeled import LabeledImages, open_labeled
from pirl_plugin.images.source import ImageSource, evenly_spaced
from pirl_plugin.models.resnet import LAST
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
        shown: N training images and then M test images.
        num_test: M; 0 if the images are unlabeled.
        features: checkpoint name → float16 ``(N, D)`` and ``(M, D)``, pooled res5 for training and
            test images; for unlabeled images, twice the same.
        layers: the layer comparison; None if the images are unlabeled.
    """

    shown: ShownImages
    num_test: int
    features: dict[str, tuple[Tensor, Tensor]]
    layers: LayerComparison | None

    @property
    def test_numbers(self) -> range:
        """Numbers of the test images among the shown ones."""
        return range(len(self.shown.rows) - self.num_test, len(self.shown.rows))


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


def measure_labeled(
    images: LabeledImages, networks: Mapping[str, AnyTrunk], titles: Sequence[str]
) -> Evaluated:
    """Compare networks layer by layer, and keep their pooled features.

    Args:
        images: training and test images.
        networks: checkpoint name → network.
        titles: the networks' names in the layer comparison.
    """
    trunks = list(networks.values())
    compared = compare_layers(dict(zip(titles, trunks, strict=True)), images, workers=0)
    measured = compared.pooled or labeled_features(trunks, [LAST], images, workers=0)
    features = {}
    for name, part in zip(networks, measured.features, strict=True):
        features[name] = measured.split(part)
    display = choose_display(images.train, trunks[0].network_config.reading)
    shown = measured.show(display)
    return Evaluated(shown, len(measured.test_labels), features, compared)


def read_unlabeled(source: ImageSource, networks: Mapping[str, AnyTrunk]) -> Evaluated:
    """Compute each network's features for at most 2,000 images, evenly spread over a source."""
    rows = evenly_spaced(len(source), _UNLABELED)
    trunks = list(networks.values())
    batches = compute_features(trunks, source, trunks[0].network_config, rows, workers=0)
    collected = collect(batches)
    readable_rows = torch.tensor(rows)[collected.readable].tolist()
    features = {}
    for name, part in zip(networks, collected.features, strict=True):
        features[name] = (part, part)
    display = choose_display(source, trunks[0].network_config.reading)
    labels = torch.full((len(readable_rows),), NO_CLASS)
    shown = ShownImages(source, readable_rows, labels, [], display)
    return Evaluated(shown, 0, features, None)
