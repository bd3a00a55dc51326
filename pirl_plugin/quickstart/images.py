"""The quickstart's images: their folders, and their features by each network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from pirl_plugin.checkpoints.load import load_trunk
from pirl_plugin.evaluation.features import evenly_spaced, store_features
from pirl_plugin.images.classes import NO_CLASS, join_classes
from pirl_plugin.images.folders import class_folders, find_splits
from pirl_plugin.images.sources import FolderSource, open_labelled
from pirl_plugin.models.preprocessing import Preprocessing

IMAGE_SIZE = 64
"""Side of the image view of ``pretrain/pirl/quick_jigsaw``, pixels."""


@dataclass(frozen=True)
class Data:
    """The folders of images.

    Attributes:
        train: folder of training images.
        val: folder of test images with the same class subfolders; None: no accuracy is measured.
        num_train: number of training images.
    """

    train: Path
    val: Path | None
    num_train: int


@dataclass(frozen=True)
class Split:
    """Images of one folder, with their features.

    Attributes:
        source: the source of the images.
        rows: the N readable rows of the source.
        features: name of a checkpoint → float32 ``(N, D)``, pooled res5.
        train_classes: names of the training images' classes; None: those of this folder.
    """

    source: FolderSource
    rows: list[int]
    features: dict[str, Tensor]
    train_classes: Sequence[str] | None = None

    @property
    def classes(self) -> list[str]:
        """Names of the classes."""
        return list(self.train_classes or self.source.classes)

    @property
    def labels(self) -> Tensor:
        """The class of each image, int64 ``(N,)``, an index into ``classes``."""
        joined = join_classes(self.classes, self.source.named_classes, self.source.path)
        return torch.from_numpy(joined[self.rows])


def find_data(folder: Path) -> Data:
    """Find ``train/CLASS/*`` and ``val/CLASS/*``, or a folder of images.

    Raises:
        ValueError: there are fewer than two images, or ``val`` has other classes.
    """
    train, val = find_splits(folder)
    num_train = len(FolderSource(train or folder))
    if train is None or val is None or len(class_folders(train)) < 2:
        return Data(train or folder, None, num_train)
    open_labelled(folder)  # checks that both have the same classes
    return Data(train, val, num_train)


def read_split(
    folder: Path,
    checkpoints: Mapping[str, Path],
    limit: int | None = None,
    *,
    train_classes: Sequence[str] | None = None,
) -> Split:
    """Compute each trunk's features of a folder's images.

    Args:
        folder: folder of images.
        checkpoints: name → file with a trunk.
        limit: at most so many evenly spread images; None: all.
        train_classes: names of the training images' classes: images without a class are left out.
    """
    source = FolderSource(folder)
    rows = evenly_spaced(len(source), limit or len(source))
    if train_classes:
        labels = source.labels()
        rows = [row for row in rows if labels[row] != NO_CLASS]
    trunks = [load_trunk(file) for file in checkpoints.values()]
    features, is_readable = store_features(
        trunks, [source], Preprocessing(IMAGE_SIZE), rows, workers=0
    )
    readable_rows = [row for row, ok in zip(rows, is_readable.tolist(), strict=True) if ok]
    by_name = {name: of_trunk.float() for name, of_trunk in zip(checkpoints, features, strict=True)}
    return Split(source, readable_rows, by_name, train_classes)
