"""How images are read: channels, dtype, conversion to RGB, and missing pixels."""

from __future__ import annotations

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
