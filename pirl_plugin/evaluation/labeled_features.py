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
from pirl_plugin.evaluation.near_equal import are_near_equal, thumbnails_of
from pirl_plugin.evaluation.pictures import Display, PageImages, label_names, page_images
from pirl_plugin.images.classes import NO_CLASS
from pirl_plugin.images.labeled import LabeledImages
from pirl_plugin.images.source import evenly_spaced
from pirl_plugin.models.trunks import AnyTrunk, layer_features
from pirl_plugin.system.console import put, warn
from pirl_plugin.system.failures import Refused

_MOST_COMPARED = 1000  # test images
_LEAST_NEAR_EQUAL = 0.1  # of these; fewer occur without bursts


@dataclass(frozen=True)
class LabeledFeatures:
    """Features for N training images and then M test images, all labeled and readable.

    Attributes:
        images: the images, which may include unlabeled and unreadable ones.
        rows: int64 ``(N + M,)``, sorted rows in ``images.joined``.
        features: ``(N + M, D)`` for each layer of each network, with the first network's features
            first.
        thumbnails: ``(N + M, T)``, see :func:`~pirl_plugin.evaluation.near_equal.thumbnails_of`.
        digests: int64 ``(N + M,)``, equal for images with equal pixels.

    Raises:
        Refused: there are no training images, or no test images.
    """

    images: LabeledImages
    rows: Tensor
    features: Sequence[Tensor]
    thumbnails: Tensor
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

    @cached_property
    def near_equal(self) -> dict[str, int] | None:
        """How many held-out test images look nearly the same as a training image.

        ``images``: their number; ``of``: the number of test images compared, at most 1,000. None:
        the user chose the test images, or named groups.
        """
        if self.images.held_out_of is None or self.groups is not None:
            return None
        train, test = self.split(self.thumbnails)
        compared = evenly_spaced(len(test), _MOST_COMPARED)
        is_near = are_near_equal(
            test[compared].float(), train.float(), self.test_labels[compared], self.train_labels
        )
        return {"images": int(is_near.sum()), "of": len(compared)}

    def warn_about_equal_images(self) -> None:
        """Log test images that are, or nearly are, training images, and images with two labels."""
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
        near_equal = self.near_equal
        if near_equal is not None and near_equal["images"] >= _LEAST_NEAR_EQUAL * near_equal["of"]:
            put(
                f"{near_equal['images']:,} of {near_equal['of']:,} test images look nearly the "
                f"same as some training image, so accuracies may be too high. If images belong "
                f"together (bursts, videos, patients), name their groups: --pattern "
                f"'(?P<group>…)…'\n"
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

    def compute(inputs: Tensor) -> list[Tensor]:
        outputs = [thumbnails_of(inputs)]
        for network in networks:
            outputs += layer_features(network, inputs, layers)
        return outputs

    config = networks[0].network_config
    device = next(networks[0].parameters()).device
    batches = compute_features(compute, images.joined, config, rows, batch, workers, device)
    computed = collect(batches, len(rows))
    thumbnails, *features = computed.features
    rows_read = torch.tensor(rows)[computed.readable]
    return LabeledFeatures(images, rows_read, features, thumbnails, computed.digests)
