"""Count held-out images that look nearly the same as a training image."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from pirl_plugin.evaluation.features import collect, compute_features
from pirl_plugin.evaluation.labeled_features import LabeledFeatures
from pirl_plugin.images.classes import NO_CLASS
from pirl_plugin.images.labeled import LabeledImages
from pirl_plugin.images.source import evenly_spaced
from pirl_plugin.models.network_config import NetworkConfig
from pirl_plugin.system.console import put

_SIDE = 16  # pixels
_MOST_TESTED = 1000  # test images
_LEAST_NEAR_EQUAL = 0.1  # of the test images; fewer occur without bursts
_OF_OTHER_CLASS = 0.5
_OF_MEDIAN = 0.15


def count_near_equal(
    images: LabeledImages, config: NetworkConfig, batch: int = 128, workers: int | None = None
) -> dict[str, int]:
    """Count test images that look nearly the same as some training image; print if many do.

    Images are compared at 16 × 16 pixels, per channel without the mean, by the angle between them.
    Two images are nearly the same if their distance is less than half of that to the nearest
    training image of another class, or less than 15 % of the median distance. In bursts and videos,
    this holds for 60 to 100 % of the images; in photos, cells and steel surfaces that were taken
    one by one, for at most 7 %, most of which are true duplicates.

    Args:
        images: training and test images.
        config: the images' channels, dtype and statistics.
        batch: number of images at a time.
        workers: number of decoding processes; None: based on the numbers of cores and images.

    Returns:
        ``images``, the number of test images that do, and ``of``, the number of test images
        compared, at most 1,000.

    Raises:
        Refused: no training image, or no test image, is labeled and readable.
    """
    labeled = np.flatnonzero(images.labels != NO_CLASS)
    train_rows = labeled[labeled < len(images.train)]
    test_rows = labeled[len(train_rows) :]
    test_rows = test_rows[evenly_spaced(len(test_rows), _MOST_TESTED)]
    rows = [*train_rows.tolist(), *test_rows.tolist()]
    config = replace(config, size=_SIDE)
    batches = compute_features(
        [_Thumbnails()], images.joined, config, rows, batch, workers, name="comparison"
    )
    thumbnails, readable, digests = collect(batches, len(rows), torch.float32)
    measured = LabeledFeatures(images, torch.tensor(rows)[readable], thumbnails, digests)
    train, test = measured.split(thumbnails[0])
    near = int(are_near_equal(test, train, measured.test_labels, measured.train_labels).sum())
    if near >= _LEAST_NEAR_EQUAL * len(test):
        put(
            f"{near:,} of {len(test):,} test images look nearly the same as some training image, "
            f"so accuracies may be too high. If images belong together (bursts, videos, patients), "
            f"name their groups: --pattern '(?P<group>…)…'\n"
        )
    return {"images": near, "of": len(test)}


class _Thumbnails(nn.Module):
    """A network whose features for small images are their pixels, without each channel's mean."""

    def forward(self, images: Tensor) -> Tensor:
        pixels = images - images.mean(dim=(2, 3), keepdim=True)
        return normalize(pixels.flatten(1), dim=1)


def are_near_equal(
    test: Tensor, train: Tensor, test_labels: Tensor, train_labels: Tensor
) -> Tensor:
    """Return which test images look nearly the same as a training image.

    Args:
        test: ``(M, D)``, unit rows.
        train: ``(N, D)``, unit rows.
        test_labels: int64 ``(M,)``.
        train_labels: int64 ``(N,)``.

    Returns:
        bool ``(M,)``.

    Example:
        >>> rows = torch.eye(3)
        >>> are_near_equal(rows[:1], rows[[0, 1, 2]], torch.tensor([0]), torch.tensor([0, 1, 1]))
        tensor([True])
        >>> are_near_equal(rows[:1], rows[[1, 2]], torch.tensor([0]), torch.tensor([0, 1]))
        tensor([False])
    """
    answers = []
    for rows, labels in zip(test.split(256), test_labels.split(256), strict=True):
        distances = (2 - 2 * rows @ train.T).clamp(min=0).sqrt()
        is_of_class = labels[:, None] == train_labels
        nearest = distances.amin(dim=1)
        other_class = distances.masked_fill(is_of_class, torch.inf).amin(dim=1)
        median = distances.median(dim=1).values
        answers.append((nearest < _OF_OTHER_CLASS * other_class) | (nearest < _OF_MEDIAN * median))
    return torch.cat(answers)
