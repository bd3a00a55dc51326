"""Features of all images of a quickstart by each trunk, read once: for accuracies and pictures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pirl_plugin.checkpoints.load import load_trunk
from pirl_plugin.evaluation.features import read_images, trunk_features
from pirl_plugin.evaluation.knn import knn_accuracy
from pirl_plugin.quickstart.data import IMAGE_SIZE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pirl_plugin.quickstart.data import Data


@dataclass(frozen=True)
class Split:
    """The images of one folder.

    Attributes:
        folder: with the images in it or in subfolders.
        paths: relative to ``folder``; N of them, those that can be read.
        features: name of a checkpoint → float32 ``(N, D)``, pooled res5.
    """

    folder: Path
    paths: list[str]
    features: dict[str, Tensor]

    @property
    def classes(self) -> list[str]:
        """Class of each image: the name of its subfolder, or ``""`` where there is none."""
        return [Path(p).parts[0] if len(Path(p).parts) > 1 else "" for p in self.paths]


def read_split(folder: Path, checkpoints: Mapping[str, Path], limit: int | None = None) -> Split:
    """Read a folder's images and take their features by each checkpoint's trunk.

    Args:
        folder: with the images.
        checkpoints: name → file.
        limit: at most this many images, spread evenly; None for all.
    """
    images, paths = read_images(folder, IMAGE_SIZE, limit)
    features = {
        name: trunk_features(load_trunk(file), images) for name, file in checkpoints.items()
    }
    return Split(folder, paths, features)


def read_splits(data: Data, checkpoints: Mapping[str, Path]) -> tuple[Split, Split | None]:
    """Features of the training and the test images; without labels, of 2,000 images at most."""
    if data.val is None:
        return read_split(data.train, checkpoints, limit=2000), None
    return read_split(data.train, checkpoints), read_split(data.val, checkpoints)


def knn_by_class(train: Split, test: Split, name: str) -> tuple[float, dict[str, float]]:
    """The kNN classifier's top-1 of all test images, and of those of each class, percent."""
    numbers = {label: number for number, label in enumerate(sorted(set(train.classes)))}
    gallery = (train.features[name], torch.tensor([numbers[c] for c in train.classes]))
    labels = torch.tensor([numbers.get(c, -1) for c in test.classes])
    queries = test.features[name]
    overall = knn_accuracy(*gallery, queries, labels)
    each = {}
    for label in dict.fromkeys(test.classes):
        rows = labels == numbers.get(label, -1)
        each[label] = knn_accuracy(*gallery, queries[rows], labels[rows])
    return overall, each
