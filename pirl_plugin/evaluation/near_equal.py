"""Count held-out images that look nearly the same as a training image."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pirl_plugin.evaluation.crops import read_crops
from pirl_plugin.images.classes import NO_CLASS
from pirl_plugin.images.labeled import LabeledImages
from pirl_plugin.images.source import evenly_spaced
from pirl_plugin.models.network_config import NetworkConfig
from pirl_plugin.models.preprocessing import normalize_images
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
    """
    labels = torch.from_numpy(images.labels)
    num_train = len(images.train)
    labeled = (labels != NO_CLASS).nonzero()[:, 0]
    tested = labeled[labeled >= num_train]
    tested = tested[evenly_spaced(len(tested), _MOST_TESTED)]
    rows = torch.cat([labeled[labeled < num_train], tested])
    crops = read_crops(
        images.joined, _SIDE, config.reading, rows.tolist(), "comparison", batch, workers
    )
    thumbnails = []
    readable = []
    for pixels, valid, _ in crops:
        values = normalize_images(pixels, config.mean, config.std)
        values = values - values.mean(dim=(2, 3), keepdim=True)
        thumbnails.append(normalize(values.flatten(1), dim=1))
        readable.append(valid)
    is_readable = torch.cat(readable)
    rows = rows[is_readable]
    thumbnail = torch.cat(thumbnails)[is_readable]
    num_train = int((rows < num_train).sum())
    train, test = thumbnail.tensor_split([num_train])
    train_labels, test_labels = labels[rows].tensor_split([num_train])
    near = int(are_near_equal(test, train, test_labels, train_labels).sum())
    if near >= _LEAST_NEAR_EQUAL * len(test):
        put(
            f"{near:,} of {len(test):,} test images look nearly the same as some training image, "
            f"so accuracies may be too high. If images belong together (bursts, videos, patients), "
            f"name their groups: --pattern '(?P<group>…)…'\n"
        )
    return {"images": near, "of": len(test)}


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
    if len(train) == 0:
        return torch.zeros(len(test), dtype=torch.bool)
    answers = [torch.empty(0, dtype=torch.bool)]
    for rows, labels in zip(test.split(256), test_labels.split(256), strict=True):
        distances = (2 - 2 * rows @ train.T).clamp(min=0).sqrt()
        is_of_class = labels[:, None] == train_labels
        nearest = distances.amin(dim=1)
        other_class = distances.masked_fill(is_of_class, torch.inf).amin(dim=1)
        median = distances.median(dim=1).values
        answers.append((nearest < _OF_OTHER_CLASS * other_class) | (nearest < _OF_MEDIAN * median))
    return torch.cat(answers)
