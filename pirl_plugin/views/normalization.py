"""Normalise uint8 views on the model's device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
"""Mean and standard deviation of ImageNet's channels, on a scale of 0 to 1."""


def normalize_images(
    images: Tensor,
    mean: Sequence[float] = IMAGENET_MEAN,
    std: Sequence[float] = IMAGENET_STD,
    memory_format: torch.memory_format = torch.channels_last,
) -> Tensor:
    """Normalise images or patches: (x / 255 − mean) / std.

    Args:
        images: uint8 ``(B, 3, H, W)``, on any device.
        mean: of the channels, on a scale of 0 to 1.
        std: likewise.
        memory_format: of the result; convolutions are faster in channels-last on CPUs and GPUs.

    Returns:
        float32 ``(B, 3, H, W)``, on the same device.

    Raises:
        ValueError: the images are not uint8, or of another shape; or not three means or deviations;
            or a deviation is not above 0.

    Example:
        >>> import torch
        >>> white = torch.full((1, 3, 1, 1), 255, dtype=torch.uint8)
        >>> normalize_images(white, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.25)).flatten()
        tensor([1., 1., 2.])
    """
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] != 3:
        raise ValueError(
            f"images are {images.dtype} {tuple(images.shape)}: expected uint8 (B, 3, H, W), RGB "
            f"levels from 0 to 255"
        )
    if len(mean) != 3 or len(std) != 3 or min(std) <= 0:
        raise ValueError(
            f"mean = {mean}, std = {std}: expected three numbers each, the deviations above 0"
        )
    pairs = list(zip(mean, std, strict=True))
    constants = torch.tensor([[1 / (255 * s) for _, s in pairs], [-m / s for m, s in pairs]])
    # Non-blocking, as a copy of a few bytes would otherwise wait for all queued work of a GPU.
    scale, shift = constants.view(2, 1, 3, 1, 1).to(images.device, non_blocking=True)
    return images.to(torch.float32, memory_format=memory_format).mul_(scale).add_(shift)
