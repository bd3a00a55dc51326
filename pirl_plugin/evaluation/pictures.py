"""Pictures for pages: center crops in red, green and blue, with file names and classes."""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from pirl_plugin.images.classes import NO_CLASS, NoLabels
from pirl_plugin.images.reading import RGB, Reading
from pirl_plugin.images.source import ImageSource, evenly_spaced
from pirl_plugin.models.preprocessing import center_crop
from pirl_plugin.system.text import printable
from pirl_plugin.views.pixels import as_image

_SIDE = 96  # of a picture, in pixels
_SAMPLE = 64  # images that determine the display range
_PERCENTILES = (0.1, 99.9)
_COLORS = ("red", "green", "blue")


@dataclass(frozen=True)
class Display:
    """The colors of all pictures on a page, which have one range, so that dark images look dark.

    Attributes:
        reading: how the images are read.
        channels: the channels shown in red, green and blue.
        names: the names of these three channels.
        low: values shown in black, float ``(3, 1, 1)``.
        high: values shown at full brightness, float ``(3, 1, 1)``.
    """

    reading: Reading
    channels: tuple[int, ...]
    names: tuple[str, ...]
    low: Tensor
    high: Tensor

    def crop(self, source: ImageSource, row: int, side: int = _SIDE) -> Tensor:
        """Return an image's center crop, uint8 ``(3, side, side)``."""
        pixels, _ = source.load(row, side, self.reading)
        return self.colors(center_crop(pixels, side))

    def colors(self, pixels: Tensor) -> Tensor:
        """Map pixels ``(C, H, W)`` to uint8 ``(3, H, W)``."""
        shown = pixels.float()[list(self.channels)]
        share = (shown - self.low) / (self.high - self.low)
        return (255 * share.clamp(0, 1)).round().to(torch.uint8)

    @property
    def caption(self) -> str:
        """A sentence about the colors; empty for ordinary RGB."""
        if self.reading.pixel_type == RGB and self.channels == (0, 1, 2):
            return ""
        ranges = zip(self.low.flatten().tolist(), self.high.flatten().tolist(), strict=True)
        values = [f"{low:,.4g} to {high:,.4g}" for low, high in ranges]
        if len(set(self.channels)) == 1:
            return f"Pictures show channel {self.names[0]}, from black to white: {values[0]}."
        colors = zip(_COLORS, self.names, values, strict=True)
        texts = [f"{color} is channel {name} ({value})" for color, name, value in colors]
        return (
            f"In pictures, {', '.join(texts)}. In brackets are the values from black to full "
            f"brightness, the same for all pictures."
        )


def choose_display(
    source: ImageSource, reading: Reading, channels: Sequence[int] | None = None
) -> Display:
    """Return a display with a common range for a source's images.

    Args:
        source: the images.
        reading: how they are read.
        channels: the channels to show in red, green and blue; None: the first three, or the first
            one in gray.
    """
    pixel_type = reading.pixel_type
    if channels is None:
        channels = (0, 1, 2) if pixel_type.channels > 2 else (0, 0, 0)
    names = source.channel_names or [*map(str, range(pixel_type.channels))]
    low = torch.zeros(3, 1, 1)
    high = torch.full((3, 1, 1), 255.0)
    if pixel_type != RGB:
        samples = [np.zeros((3, 1))]  # used if no image is readable
        for row in evenly_spaced(len(source), _SAMPLE):
            pixels, is_readable = source.load(row, _SIDE, reading)
            if is_readable:
                crop = center_crop(pixels, _SIDE).float()
                samples.append(crop[list(channels)].flatten(1).numpy())
        values = np.concatenate(samples[1:] or samples, axis=1)
        ends = torch.from_numpy(np.percentile(values, _PERCENTILES, axis=1)).float()
        low, high = ends[:, :, None, None]
        high = torch.where(high > low, high, low + 1)
    return Display(reading, tuple(channels), tuple(names[c] for c in channels), low, high)


@dataclass(frozen=True)
class Picture:
    """A small picture.

    Attributes:
        image: its ``data:`` URL.
        name: the image's file name.
        label: its class; empty if it is unlabeled.
        note: more about it, such as its predicted class; may be empty.
    """

    image: str
    name: str
    label: str
    note: str = ""


@dataclass(frozen=True)
class ShownImages:
    """Images, some of which a page shows.

    Attributes:
        source: the images.
        rows: N rows in the source.
        labels: int64 ``(N,)``, indices into ``classes``; −1: unlabeled.
        classes: class names; empty for unlabeled images.
        display: colors of their pictures.
    """

    source: ImageSource
    rows: Sequence[int]
    labels: Tensor
    classes: Sequence[str]
    display: Display

    @cached_property
    def folder(self) -> str:
        """The innermost folder that contains all images."""
        return os.path.commonpath({os.path.dirname(self._path_of(row)) for row in self.rows})

    def name(self, number: int) -> str:
        """Return one of the N file names, relative to :attr:`folder`."""
        path = self._path_of(self.rows[number])
        return printable(path.removeprefix(os.path.join(self.folder, "")))

    def label(self, number: int) -> str:
        """Return one of the N class names; empty: unlabeled."""
        label = int(self.labels[number])
        return "" if label == NO_CLASS else printable(self.classes[label])

    def picture(self, number: int, note: str = "") -> Picture:
        """Return the picture of one of the N images."""
        crop = self.display.crop(self.source, self.rows[number])
        return Picture(data_url(crop), self.name(number), self.label(number), note)

    def _path_of(self, row: int) -> str:
        return os.path.abspath(self.source.path_of(row))


def show_images(source: ImageSource, rows: Sequence[int], display: Display) -> ShownImages:
    """Return some of a source's images, with labels if it has any."""
    classes: Sequence[str] = []
    labels = torch.full((len(rows),), NO_CLASS)
    with suppress(NoLabels):
        classes = source.classes
        labels = torch.from_numpy(source.labels())[rows]
    return ShownImages(source, rows, labels, classes, display)


@dataclass(frozen=True)
class Group:
    """Pictures side by side; the title may be empty."""

    title: str
    pictures: Sequence[Picture]


@dataclass(frozen=True)
class PictureSection:
    """A section of a page: groups of pictures, with a title and an explanation."""

    title: str
    text: str
    groups: Sequence[Group]


def data_url(image: Tensor, quality: int = 80) -> str:
    """Return an RGB image, uint8 ``(3, H, W)``, as the ``data:`` URL of a JPEG.

    Args:
        image: the image.
        quality: JPEG quality, 1 to 95.
    """
    stream = io.BytesIO()
    as_image(image).save(stream, "JPEG", quality=quality, subsampling=0)  # sharp colors
    return "data:image/jpeg;base64," + base64.b64encode(stream.getvalue()).decode()
