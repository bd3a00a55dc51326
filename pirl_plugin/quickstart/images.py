"""The quickstart's images."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pirl_plugin.evaluation.logistic import held_out_splits
from pirl_plugin.images.classes import NO_CLASS
from pirl_plugin.images.folders import FolderSource, class_folders, find_splits
from pirl_plugin.images.labeled import LabeledImages, open_labeled
from pirl_plugin.images.source import ImageSource
from pirl_plugin.system.failures import check

IMAGE_SIZE = 64
"""Image view size in ``pretrain/pirl/quick_jigsaw``, in pixels."""


@dataclass(frozen=True)
class Data:
    """The images.

    Attributes:
        train: training images.
        labeled: training and test images from the same classes; None: measure no accuracy.
    """

    train: ImageSource
    labeled: LabeledImages | None = None


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
