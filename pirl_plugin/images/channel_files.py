"""Images with one file per channel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray

from pirl_plugin.images.decode import Decoded, UnreadableImageError, decode, read_file
from pirl_plugin.images.source import ImageSource
from pirl_plugin.system.console import warn_once
from pirl_plugin.views.pixels import is_rgb


class ChannelFilesSource(ImageSource):
    """A source whose images may have one file per channel.

    A subclass sets :attr:`channel_names`, and overrides :meth:`channel_files`. If there are no
    names, each image is one file.
    """

    def files(self) -> list[str]:
        """Return the paths of all files, in order."""
        return list(chain.from_iterable(map(self.files_of, range(len(self)))))

    def _read_image(self, row: int, scaled_to: int) -> Decoded:
        if not self.channel_names:
            return super()._read_image(row, scaled_to)
        files = self.channel_files(row)
        for name in self.channel_names:
            if name not in files:
                raise UnreadableImageError(f"it has no file for channel {name}")
        with self.reading(row):
            images = {}
            values = {}
            for name in self.channel_names:
                image = _single_channel(files[name], scaled_to)
                images[name] = image.pixels.numpy()
                # NaN is missing in any case, and would differ from itself.
                values[name] = None if np.isnan(image.nodata or 0) else image.nodata
        if len(set(values.values())) > 1:
            raise UnreadableImageError(f"its channels name different nodata values: {values}")
        pixels = torch.from_numpy(np.concatenate(list(self._equal_sizes(images))))
        return Decoded(pixels, values[self.channel_names[0]])

    def _equal_sizes(
        self, images: Mapping[str, NDArray[np.generic]]
    ) -> Iterator[NDArray[np.generic]]:
        """Resize channels ``(1, H, W)`` to the largest; log their names once.

        Each pixel is a copy of the nearest one, because interpolation would mix missing pixels with
        their neighbors.

        Raises:
            UnreadableImageError: their types or proportions differ.
        """
        types = {name: array.dtype for name, array in images.items()}
        if len(set(types.values())) > 1:
            listed = ", ".join(f"{name} {dtype}" for name, dtype in types.items())
            raise UnreadableImageError(f"its channels have different types: {listed}")
        _, height, width = max((array.shape for array in images.values()), key=np.prod)
        resized = []
        for name, array in images.items():
            _, rows, columns = array.shape
            if (rows, columns) == (height, width):
                yield array
                continue
            if abs(rows * width - columns * height) > max(height, width):  # more than a pixel
                raise UnreadableImageError(
                    f"channel {name} has {columns} × {rows} pixels, but another channel has "
                    f"{width} × {height}"
                )
            resized.append(name)
            yield array[:, _nearest(rows, height)][:, :, _nearest(columns, width)]
        if resized:
            warn_once(f"{self.path}: channels {' '.join(resized)} are resized to the largest one")


def _nearest(size: int, larger: int) -> NDArray[np.int64]:
    """Return the nearest of ``size`` pixels for each of ``larger`` ones.

    Example:
        >>> _nearest(2, 5).tolist()
        [0, 0, 1, 1, 1]
    """
    return (2 * np.arange(larger) + 1) * size // (2 * larger)


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
