"""Frozen features of a folder of images."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torchvision.transforms.v2 import functional as tv

from pirl_plugin.images.decode import UnreadableImageError, decode_image
from pirl_plugin.images.read import read_file
from pirl_plugin.images.sources.paths import find_images
from pirl_plugin.utils.rows import evenly_spaced
from pirl_plugin.views.normalization import normalize_images
from pirl_plugin.views.statistics import IMAGENET_MEAN, IMAGENET_STD

_log = logging.getLogger(__name__)

_LONGEST = 4  # sides of an image over its shorter one, of what is resized


def centre_crop(image: Tensor, size: int) -> Tensor:
    """The middle of an image, its shorter side resized to 8/7 of ``size`` (256 for 224).

    Args:
        image: uint8 ``(3, H, W)``.
        size: side of the crop, pixels.

    Returns:
        uint8 ``(3, size, size)``.
    """
    height, width = image.shape[1:]
    most = _LONGEST * min(height, width)
    if max(height, width) > most:  # resized whole, a thin image would take gigabytes
        image = tv.center_crop(image, [min(height, most), min(width, most)])
    return tv.center_crop(tv.resize(image, [round(size * 8 / 7)], antialias=True), [size, size])


def read_images(folder: Path, size: int, limit: int | None = None) -> tuple[Tensor, list[str]]:
    """Centre crops of the images of a folder, in the order of their names.

    Args:
        folder: with the images in it or in subfolders.
        size: side of the crops, pixels; the shorter side is first resized to 8/7 of it.
        limit: at most this many, spread evenly over the folder.

    Returns:
        uint8 ``(N, 3, size, size)`` and the N paths relative to ``folder``. Files that cannot be
        read are left out, and counted in one warning.

    Raises:
        ValueError: none can be read.
    """
    paths = list(find_images(str(folder)))
    if limit is not None:
        paths = [paths[row] for row in evenly_spaced(len(paths), limit)]
    crops, kept, reasons = [], [], []
    for path in paths:
        try:
            image = decode_image(read_file(str(folder / path)))
        except (OSError, UnreadableImageError) as error:
            reasons.append(f"{path}: {error}")
            continue
        crops.append(centre_crop(image, size))
        kept.append(path)
    if not crops:
        raise ValueError(
            f"{folder}: expected images, and none of {len(paths)} can be read; name another folder"
        )
    if reasons:
        _log.warning(
            f"{folder}: {len(reasons)} of {len(paths)} images cannot be read and are left out; the "
            f"first is {reasons[0]}"
        )
    return torch.stack(crops), kept


class Normalization(NamedTuple):
    """Mean and deviation of each channel, of values in [0, 1]; those of ImageNet by default."""

    mean: Sequence[float] = IMAGENET_MEAN
    std: Sequence[float] = IMAGENET_STD

    def __call__(self, images: Tensor) -> Tensor:
        """float32 ``(B, 3, H, W)`` of uint8."""
        return normalize_images(images, self.mean, self.std, torch.contiguous_format)


IMAGENET_NORMALIZATION = Normalization()


@torch.no_grad()
def trunk_features(
    trunk: nn.Module,
    images: Tensor,
    batch: int = 128,
    normalize: Normalization = IMAGENET_NORMALIZATION,
) -> Tensor:
    """Pooled res5 features.

    Args:
        trunk: as of :func:`~pirl_plugin.checkpoints.load.load_trunk`, in evaluation mode.
        images: uint8 ``(N, 3, H, W)``, on any device: a batch at a time goes to the trunk's.
        batch: images at a time.
        normalize: as the trunk was trained with.

    Returns:
        float32 ``(N, D)``, on the trunk's device.
    """
    device = next(trunk.parameters()).device
    features = []
    for chunk in images.split(batch):
        features.append(trunk(normalize(chunk.to(device)), ["flatten"])[0])
    return torch.cat(features)
