"""Normalize images on their device, and crop their centers."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.functional import interpolate

from pirl_plugin.system.failures import Refused
from pirl_plugin.system.text import counted
from pirl_plugin.views import IMAGENET_MEAN, IMAGENET_STD

_LONGEST_STRIP = 100  # times the shorter side, before resizing


def center_crop(images: torch.Tensor, size: int) -> torch.Tensor:
    """Resize the shorter side of images to 8/7 of ``size`` (256 for 224), and crop the center.

    On a CPU, uint8 is resized as in torchvision. ``torch.export`` accepts any number and size of
    images, because the computation has no branches on them.

    Args:
        images: uint8, uint16 or float32 ``(C, H, W)`` or ``(B, C, H, W)``.
        size: side of the crop in pixels.

    Returns:
        ``(…, C, size, size)``, uint8 or float32.
    """
    height, width = images.shape[-2:]
    shorter: Any = torch.sym_min(height, width)
    is_exporting = torch.compiler.is_exporting()
    if not is_exporting:  # resizing all of 1 × 40,000 px would take gigabytes
        longest = _LONGEST_STRIP * shorter
        images = _crop(images, min(height, longest), min(width, longest))
        height, width = images.shape[-2:]
    is_uint8 = images.dtype == torch.uint8
    if not is_uint8 or is_exporting or images.device.type != "cpu":
        images = images.float()
    target = round(size * 8 / 7)
    sides = (height * target // shorter, width * target // shorter)
    resized = images[None] if images.ndim == 3 else images
    resize = functools.partial(interpolate, mode="bilinear", antialias=True)
    if is_uint8 and resized.is_floating_point():
        # Like torch's kernel for uint8, resize the rows first, and round after each direction.
        resized = resize(resized, (height, sides[1])).round()
        resized = resize(resized, sides).round().to(torch.uint8)
    else:
        resized = resize(resized, sides)
    # torch.export does not know the cropped size otherwise.
    return _crop(resized, size, size).reshape(*images.shape[:-2], size, size)


def _crop(images: torch.Tensor, height: int, width: int) -> torch.Tensor:
    """Crop the center; as in torchvision, half a pixel is rounded to an even offset."""
    top, left = (
        rest // 2 + (rest % 2) * (rest // 2 % 2)
        for rest in (images.shape[-2] - height, images.shape[-1] - width)
    )
    return images[..., top : top + height, left : left + width]


def normalize_images(
    images: torch.Tensor,
    mean: Sequence[float] = IMAGENET_MEAN,
    std: Sequence[float] = IMAGENET_STD,
    memory_format: torch.memory_format = torch.channels_last,
) -> torch.Tensor:
    """Normalize images or patches: (x / 255 − mean) / std for uint8, (x − mean) / std otherwise.

    Args:
        images: uint8, uint16 or float32 ``(B, C, H, W)``, on any device.
        mean: per-channel mean. For uint8, white is 1; other dtypes keep their units.
        std: per-channel standard deviation, in the same units.
        memory_format: memory format of the result; convolutions are faster in channels-last.

    Returns:
        float32 ``(B, C, H, W)``, on the same device.

    Raises:
        ValueError: the images have the wrong shape or dtype, or not as many channels as ``mean``
            and ``std``; or, for uint8, a mean or standard deviation is above 1.

    Example:
        >>> white = torch.full((1, 3, 1, 1), 255, dtype=torch.uint8)
        >>> normalize_images(white, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.25)).flatten()
        tensor([1., 1., 2.])
    """
    if images.ndim != 4 or images.dtype not in (torch.uint8, torch.uint16, torch.float32):
        # torch's default collation of patches gives (B, 9, C, P, P).
        raise Refused(
            f"images: expected uint8, uint16 or float32 (B, C, H, W), got {images.dtype} "
            f"{tuple(images.shape)}. Views need collate_fn=collate_views in the DataLoader."
        )
    if not images.shape[1] == len(mean) == len(std):
        raise Refused(
            f"`mean` and `std` have {len(mean)} and {len(std)} values, but the images have "
            f"{counted(images.shape[1], 'channel')}."
        )
    white = 255 if images.dtype == torch.uint8 else 1
    constants = scale_and_shift(tuple(map(float, mean)), tuple(map(float, std)), white)
    # Non-blocking, because this small copy would otherwise wait for all queued GPU work.
    scale, shift = constants.to(images.device, non_blocking=True)
    return images.to(torch.float32, memory_format=memory_format, copy=True).mul_(scale).add_(shift)


@functools.cache  # the same in each step
def scale_and_shift(mean: tuple[float, ...], std: tuple[float, ...], white: int) -> torch.Tensor:
    """Check the statistics; return per-channel factors and offsets, float32 (2, 1, C, 1, 1)."""
    # In float64, so that each is rounded only once.
    levels = torch.tensor(mean, dtype=torch.float64, device="cpu")
    deviations = torch.tensor(std, dtype=torch.float64, device="cpu")
    # Statistics for levels from 0 to 255 would make all images nearly the same.
    if white == 255 and not ((levels >= 0) & (levels <= 1) & (deviations <= 1)).all():
        raise Refused(
            f"`mean` and `std`: expected numbers from 0 to 1 for uint8 images, got {mean} and "
            f"{std}. Divide statistics for levels from 0 to 255 by 255."
        )
    constants = torch.stack([1 / (white * deviations), -levels / deviations])
    return constants.float().view(2, 1, -1, 1, 1)
