"""Features for labeled training and test images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pirl_plugin.evaluation.features import collect, compute_features
from pirl_plugin.evaluation.knn import percent_right
from pirl_plugin.evaluation.pictures import Display, PageImages, label_names, page_images
from pirl_plugin.images.classes import NO_CLASS
from pirl_plugin.images.labeled import LabeledImages
from pirl_plugin.models.trunks import AnyTrunk
from pirl_plugin.system.console import warn
from pirl_plugin.system.failures import Refused


@dataclass(frozen=True)
class LabeledFeatures:
    """Features for N training images and then M test images, all labeled and readable.

    Attributes:
        images: the images, which may include unlabeled and unreadable ones.
        rows: int64 ``(N + M,)``, sorted rows in ``images.joined``.
        features: ``(N + M, D)`` for each layer of each network, with the first network's features
            first.
        digests: int64 ``(N + M,)``, equal for images with equal pixels.

    Raises:
        Refused: there are no training images, or no test images.
    """

    images: LabeledImages
    rows: Tensor
    features: Sequence[Tensor]
    digests: Tensor

    def __post_init__(self) -> None:
        num_test = len(self.rows) - self.num_train
        if self.num_train == 0 or num_test == 0:
            raise Refused(
                f"{self.images.train.path} has {self.num_train} labeled, readable images, and "
                f"{self.images.test.path} has {num_test}. Both need at least one."
            )

    @cached_property
    def num_train(self) -> int:
        """N."""
        return int((self.rows < len(self.images.train)).sum())

    @cached_property
    def labels(self) -> Tensor:
        """int64 ``(N + M,)``, indices into ``images.classes``."""
        return torch.from_numpy(self.images.labels)[self.rows]

    @property
    def train_labels(self) -> Tensor:
        """int64 ``(N,)``."""
        return self.labels[: self.num_train]

    @property
    def test_labels(self) -> Tensor:
        """int64 ``(M,)``."""
        return self.labels[self.num_train :]

    @property
    def groups(self) -> NDArray[np.int64] | None:
        """int64 ``(N + M,)``, equal for images that belong together; None: no groups."""
        groups = self.images.joined.groups()
        return None if groups is None else groups[self.rows]

    @property
    def chance_top1(self) -> float:
        """Accuracy of always predicting the class most frequent in training, percent."""
        return percent_right(self.test_labels == self.train_labels.mode().values)

    def split(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Divide ``(N + M, D)`` between training and test images."""
        return features[: self.num_train], features[self.num_train :]

    def show(self, display: Display) -> PageImages:
        """Return the N + M images, for a page."""
        labels = label_names(self.images.classes, self.labels.numpy())
        return page_images(self.images.joined, self.rows.tolist(), display, labels)

    def warn_about_equal_images(self) -> None:
        """Log the numbers of test images in the training set, and of images with two labels."""
        path_of = self.images.joined.path_of
        train_digests, test_digests = self.split(self.digests)
        shared = self.rows[self.num_train :][torch.isin(test_digests, train_digests)].tolist()
        if shared:
            warn(
                f"{len(shared)} of {len(test_digests)} test images are also training images, so "
                f"accuracies are too high (first: {path_of(shared[0])})."
            )
        labeled_digests = torch.stack([self.digests, self.labels]).unique(dim=1)
        values, num_labels = labeled_digests[0].unique(return_counts=True)
        contradicted = self.rows[torch.isin(self.digests, values[num_labels > 1])].tolist()
        if contradicted:
            warn(
                f"{len(contradicted)} of {len(self.rows)} images have the same pixels as an image "
                f"with another label (first: {path_of(contradicted[0])})."
            )


def labeled_features(
    networks: Sequence[AnyTrunk],
    layers: Sequence[str],
    images: LabeledImages,
    rows: Sequence[int] | None = None,
    batch: int = 128,
    workers: int | None = None,
) -> LabeledFeatures:
    """Compute features at several layers, reading each image once.

    Args:
        networks: networks of the same architecture, in evaluation mode, on one device.
        layers: layer names.
        images: training and test images.
        rows: sorted rows of labeled images in ``images.joined``; None: all labeled images.
        batch: number of images at a time.
        workers: number of decoding processes; None: based on the numbers of cores and images.

    Raises:
        Refused: no training image, or no test image, is labeled and readable.
    """
    if rows is None:
        rows = np.flatnonzero(images.labels != NO_CLASS).tolist()
    config = networks[0].network_config
    batches = compute_features(networks, images.joined, config, rows, batch, workers, layers)
    features, readable, digests = collect(batches, len(rows))
    return LabeledFeatures(images, torch.tensor(rows)[readable], features, digests)
