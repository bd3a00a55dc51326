"""How images are read: channels, dtype, conversion to RGB, missing pixels; and their statistics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from pirl_plugin.images.decode import Decoded, UnreadableImageError
from pirl_plugin.system.failures import Refused
from pirl_plugin.system.text import counted
from pirl_plugin.views.pixels import as_rgb


class PixelType(NamedTuple):
    """Number of channels and dtype of pixels ``(C, H, W)``: uint8, uint16 or float32."""

    channels: int
    dtype: torch.dtype

    def __str__(self) -> str:
        dtype = str(self.dtype).removeprefix("torch.")
        return f"{counted(self.channels, 'channel')} of {dtype}"

    @property
    def white(self) -> int:
        """The level that statistics count as 1: 255 for uint8; other dtypes keep their units."""
        return 255 if self.dtype == torch.uint8 else 1

    @property
    def gray(self) -> torch.Tensor:
        """A gray image of this type, 224 px, in place of an unreadable one."""
        return torch.full((self.channels, 224, 224), 128, dtype=self.dtype)


RGB = PixelType(3, torch.uint8)


class Reading(NamedTuple):
    """How images are read.

    Attributes:
        pixel_type: channels and dtype; other images are unreadable.
        rgb: convert images of one, three or four channels and at most 16 bits to ``RGB``.
        nodata: the value of missing pixels, besides NaN and the value that a file names.
        mean: what replaces missing pixels, per channel, in the units of the statistics; empty: the
            mean of the source's images.
    """

    pixel_type: PixelType = RGB
    rgb: bool = False
    nodata: float | None = None
    mean: tuple[float, ...] = ()

    def select(self, image: Decoded) -> tuple[torch.Tensor, NDArray[np.bool_] | None]:
        """Return an image's pixels ``(C, H, W)``, and which are missing; None: none are.

        Raises:
            UnreadableImageError: the image has another type, infinite values, or no valid pixel.
        """
        pixels = image.pixels
        missing = image.missing(self.nodata)
        if missing is not None:
            if missing.all():
                raise UnreadableImageError("it has no valid pixel")
            if (np.isinf(pixels.numpy()) & ~missing).any():
                raise UnreadableImageError("it has infinite values; replace them")
            if not missing.any():
                missing = None
        actual = PixelType(len(pixels), pixels.dtype)
        if self.rgb and actual != RGB:
            try:
                pixels = as_rgb(pixels)
            except Refused as error:
                raise UnreadableImageError(str(error)) from None
            missing = None if missing is None else np.broadcast_to(missing[:3], pixels.shape)
        elif actual != self.pixel_type:
            raise UnreadableImageError(f"it has {actual}, but most images have {self.pixel_type}")
        return pixels, missing

    def replace_missing(self, pixels: torch.Tensor, missing: NDArray[np.bool_]) -> torch.Tensor:
        """Return pixels in which each missing value is its channel's mean."""
        levels = np.multiply(self.mean, self.pixel_type.white)[:, None, None]
        if not pixels.is_floating_point():
            levels = levels.round()
        array = pixels.numpy()
        return torch.from_numpy(np.where(missing, levels.astype(array.dtype), array))


class Statistics(NamedTuple):
    """Per-channel statistics; for uint8, white is 1.

    Attributes:
        mean: mean.
        std: standard deviation; 1 if the channel is constant.
        low: smallest value; empty if it was not measured.
        high: largest value.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


def measure(
    images: Iterable[tuple[torch.Tensor, NDArray[np.bool_] | None]], white: int, path: str
) -> Statistics:
    """Return the statistics of images, each weighted by its share of valid pixels.

    Args:
        images: pixels ``(C, H, W)``, and which are missing; None: none are.
        white: the level that counts as 1.
        path: where the images are, for messages.

    Raises:
        Refused: there are no images, or a channel has no valid pixel.
    """
    per_image = []
    for pixels, missing in images:
        mask = np.ma.nomask if missing is None else missing
        values = np.ma.array(pixels.double().numpy() / white, mask=mask).reshape(len(pixels), -1)
        share = np.ma.array(values.count(1) / values.shape[1])
        moments = [share, values.mean(1), (values**2).mean(1), values.min(1), values.max(1)]
        per_image.append(np.ma.stack(moments))
    if not per_image:
        raise Refused(f"{path}: none of the images could be read; see the warnings above.")
    shares, means, squares, low, high = np.ma.stack(per_image, axis=1)
    mean = np.ma.average(means, 0, shares)
    if np.ma.is_masked(mean):
        raise Refused(f"{path}: a channel has no valid pixel in the images that were tried.")
    variance = np.ma.average(squares, 0, shares) - mean**2
    std = np.where(variance > 0, np.sqrt(np.maximum(variance, 0)), 1)
    columns = (mean, std, low.min(0), high.max(0))
    return Statistics(*(tuple(values.tolist()) for values in columns))
