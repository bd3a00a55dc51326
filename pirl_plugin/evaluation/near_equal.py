"""Find images that look nearly the same as others.

Images are compared at 16 × 16 pixels, per channel without the mean, by the angle between them. In
bursts and videos, 60 to 100 % of the images look nearly the same as another one; in photos, cells
and steel surfaces that were taken one by one, at most 7 %, most of which are true duplicates.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d, normalize

_SIDE = 16  # pixels
_OF_OTHER_CLASS = 0.5
_OF_MEDIAN = 0.15
_LEAST_NORM = 1e-3  # of an image that is not blank; rounding leaves less


def thumbnails_of(images: Tensor) -> Tensor:
    """Return small versions of images ``(B, C, H, W)``: unit rows ``(B, C·16·16)``."""
    pixels = adaptive_avg_pool2d(images, _SIDE)
    pixels = pixels - pixels.mean(dim=(2, 3), keepdim=True)
    return normalize(pixels.flatten(1), dim=1, eps=_LEAST_NORM)


def are_near_equal(
    test: Tensor, train: Tensor, test_labels: Tensor, train_labels: Tensor
) -> Tensor:
    """Return which test images look nearly the same as a training image.

    Two images do if their distance is less than half of that to the nearest training image of
    another class, or less than 15 % of the median distance.

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
