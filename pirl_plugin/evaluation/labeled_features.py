"""Features for labeled training and test images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pirl_plugin.evaluation.features import collect, compute_features
from pirl_plugin.evaluation.pictures import Display, ShownImages
from pirl_plugin.images.classes import NO_CLASS
from pirl_plugin.images.labeled import LabeledImages
from pirl_plugin.models.trunks import AnyTrunk
from pirl_plugin.system.console import warn
from pirl_plugin.system.failures import Refused


@dataclass(frozen=True)
class LabeledFeatures:
    """Features for N training and M test images, which are labeled and readable.

    Attributes:
        features: ``(N, D)`` and ``(M, D)`` for each layer of each network, with the first network's
            features first.
        train_rows: int64 ``(N,)``, rows in the training source.
        test_rows: int64 ``(M,)``, rows in the test source.
        train_labels: int64 ``(N,)``.
        test_labels: int64 ``(M,)``.
        is_shared: bool ``(M,)``, whether a test image's pixels equal a training image's.
        is_contradicted: bool ``(N + M,)``, whether an equal image has another label.
    """

    features: list[tuple[Tensor, Tensor]]
    train_rows: Tensor
    test_rows: Tensor
    train_labels: Tensor
    test_labels: Tensor
    is_shared: Tensor
    is_contradicted: Tensor

    @classmethod
    def of_rows(
        cls, images: LabeledImages, rows: Tensor, features: Sequence[Tensor], digests: Tensor
    ) -> LabeledFeatures:
        """Combine features with labels.

        Args:
            images: training and test images.
            rows: int64 ``(N + M,)``, sorted rows of labeled, readable images, the training images
                first.
            features: ``(N + M, D)`` for each layer of each network.
            digests: int64 ``(N + M,)``.

        Raises:
            Refused: there are no training images, or no test images.
        """
        num_train = int((rows < len(images.train)).sum())
        if num_train in (0, len(rows)):
            raise Refused(
                f"{images.train.path} has {num_train} labeled, readable images, and "
                f"{images.test.path} has {len(rows) - num_train}. Both need at least one."
            )
        train_rows, test_rows = rows.tensor_split([num_train])
        labels = torch.from_numpy(images.labels)[rows]
        train_labels, test_labels = labels.tensor_split([num_train])
        pairs = []
        for part in features:
            train, test = part.tensor_split([num_train])
            pairs.append((train, test))
        train_digests, test_digests = digests.tensor_split([num_train])
        different = torch.stack([digests, labels]).unique(dim=1)
        values, num_labels = different[0].unique(return_counts=True)
        return cls(
            features=pairs,
            train_rows=train_rows,
            test_rows=test_rows - len(images.train),
            train_labels=train_labels,
            test_labels=test_labels,
            is_shared=torch.isin(test_digests, train_digests),
            is_contradicted=torch.isin(digests, values[num_labels > 1]),
        )

    def shown(self, images: LabeledImages, display: Display) -> ShownImages:
        """Return the N training images and then the M test images, for a page."""
        rows = torch.cat([self.train_rows, self.test_rows + len(images.train)])
        labels = torch.cat([self.train_labels, self.test_labels])
        return ShownImages(images.joined(), rows.tolist(), labels, images.classes, display)

    def warn_about_equal_images(self, images: LabeledImages) -> None:
        """Log the numbers of test images in the training set, and of images with two labels."""
        rows = self.test_rows[self.is_shared].tolist()
        if rows:
            warn(
                f"{len(rows)} of {len(self.test_rows)} test images are also training images, so "
                f"accuracies are too high (first: {images.test.path_of(rows[0])})."
            )
        of_train, of_test = self.is_contradicted.tensor_split([len(self.train_rows)])
        contradicted = [images.train.path_of(row) for row in self.train_rows[of_train].tolist()]
        contradicted += [images.test.path_of(row) for row in self.test_rows[of_test].tolist()]
        if contradicted:
            warn(
                f"{len(contradicted)} of {len(self.is_contradicted)} images have the same pixels "
                f"as an image with another label (first: {contradicted[0]})."
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
        rows: sorted rows of labeled images, where test images are counted after all training
            images; None: all labeled images.
        batch: number of images at a time.
        workers: number of decoding processes; None: based on the numbers of cores and images.

    Raises:
        Refused: no training image, or no test image, is labeled and readable.
    """
    if rows is None:
        rows = np.flatnonzero(images.labels != NO_CLASS).tolist()
    config = networks[0].network_config
    batches = compute_features(networks, images.joined(), config, rows, batch, workers, layers)
    features, readable, digests = collect(batches)
    return LabeledFeatures.of_rows(images, torch.tensor(rows)[readable], features, digests)
