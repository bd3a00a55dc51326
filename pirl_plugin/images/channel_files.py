"""Images with one file per channel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch.nn.functional import interpolate

from pirl_plugin.images.decode import Decoded, UnreadableImageError, decode, read_file
from pirl_plugin.system.console import warn_once
from pirl_plugin.views.pixels import is_rgb


def join_channels(
    path: str, names: Sequence[str], files: Mapping[str, str], scaled_to: int
) -> Decoded:
    """Decode an image's files to its channels.

    Channels smaller than the largest are resized; their names are logged once. Each pixel is a copy
    of the nearest one, because interpolation would mix missing pixels with their neighbors.

    Args:
        path: the source's path, for the log.
        names: the channels in order.
        files: channel → path.
        scaled_to: as in :func:`~pirl_plugin.images.decode.decode`.

    Raises:
        UnreadableImageError: a file is missing or cannot be decoded, or types or proportions
            differ.
    """
    for name in names:
        if name not in files:
            raise UnreadableImageError(f"it has no file for channel {name}")
    images = [_single_channel(files[name], scaled_to) for name in names]
    first = images[0].pixels.dtype
    height, width = max((image.pixels.shape[1:] for image in images), key=np.prod)
    channels = []
    resized = []
    for name, image in zip(names, images, strict=True):
        channel = image.pixels
        _, rows, columns = channel.shape
        if channel.dtype != first:
            raise UnreadableImageError(
                f"its channels have different types: {names[0]} {first}, {name} {channel.dtype}"
            )
        if abs(rows * width - columns * height) > max(height, width):  # more than a pixel
            raise UnreadableImageError(
                f"channel {name} has {columns} × {rows} pixels, but another channel has "
                f"{width} × {height}"
            )
        if (rows, columns) != (height, width):
            resized.append(name)
            copied = interpolate(channel[None].float(), (height, width), mode="nearest-exact")
            channel = copied[0].to(first)
        channels.append(channel)
    if resized:
        warn_once(f"{path}: channels {' '.join(resized)} are resized to the largest one")
    nodata = np.array([image.nodata for image in images], np.float64)  # NaN for None
    return Decoded(torch.cat(channels), nodata[:, None, None])


def _single_channel(path: str, scaled_to: int) -> Decoded:
    """Decode a file with one channel to ``(1, H, W)``.

    An ordinary grayscale file is decoded to three equal channels.

    Raises:
        UnreadableImageError: it cannot be decoded, or has several channels.
    """
    try:
        image = decode(read_file(path), scaled_to)
    except UnreadableImageError as error:
        raise UnreadableImageError(f"{path}: {error}") from None
    pixels = image.pixels
    if is_rgb(pixels) and bool((pixels == pixels[:1]).all()):
        pixels = pixels[:1]
    if len(pixels) > 1:
        raise UnreadableImageError(f"{path} has {len(pixels)} channels, but should have one")
    return Decoded(pixels, image.nodata)
