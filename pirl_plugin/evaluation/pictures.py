"""A page's images: pictures in red, green and blue, file names, classes and predictions."""

from __future__ import annotations

import base64
import io
import os
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pirl_plugin.images.classes import NoLabels
from pirl_plugin.images.reading import RGB, Reading
from pirl_plugin.images.source import ImageSource, evenly_spaced
from pirl_plugin.models.preprocessing import center_crop
from pirl_plugin.system.text import printable
from pirl_plugin.views.pixels import as_image

_SIDE = 96  # of a picture, in pixels
_SAMPLE = 64  # images that determine the display range
_QUANTILES = (0.001, 0.999)


@dataclass(frozen=True)
class Display:
    """The colors of all pictures on a page, which have one range, so that dark images look dark.

    Attributes:
        reading: how the images are read.
        channels: the channels in red, green and blue.
        low: values shown in black, float ``(3,)``.
        high: values shown at full brightness, float ``(3,)``.
    """

    reading: Reading
    channels: list[int]
    low: Tensor
    high: Tensor

    def colors(self, pixels: Tensor) -> Tensor:
        """Map pixels ``(C, H, W)`` to uint8 ``(3, H, W)``."""
        low = self.low[:, None, None]
        extent = (self.high - self.low).clamp(min=1e-12)[:, None, None]
        share = (pixels.float()[self.channels] - low) / extent
        return (255 * share.clamp(0, 1)).round().to(torch.uint8)

    @property
    def is_plain(self) -> bool:
        """Whether these are the colors of ordinary photos."""
        return self.reading.pixel_type == RGB and self.channels == [0, 1, 2]


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
        channels = [0, 1, 2] if pixel_type.channels > 2 else [0, 0, 0]
    channels = list(channels)
    low = torch.zeros(3)
    high = torch.full((3,), 255.0)
    if pixel_type != RGB:
        samples = []
        for row in evenly_spaced(len(source), _SAMPLE):
            pixels, is_readable = source.load(row, _SIDE, reading)
            if is_readable:
                samples.append(center_crop(pixels, _SIDE)[channels].float().flatten(1))
        if samples:
            low, high = torch.cat(samples, dim=1).quantile(torch.tensor(_QUANTILES), dim=1)
    return Display(reading, channels, low, high)


@dataclass(frozen=True)
class PageImages:
    """The N images that a page is about, with what is known of each.

    Attributes:
        source: the images.
        rows: N rows in the source.
        display: colors of their pictures.
        labels: class names, ``(N,)``; empty: unlabeled.
        predicted: predicted class names, ``(N,)``; empty: not predicted.
        probability: probabilities of the predicted classes, floating ``(N,)``.
        predictable: all class names that could have been predicted.
    """

    source: ImageSource
    rows: Sequence[int]
    display: Display
    labels: NDArray[np.str_]
    predicted: NDArray[np.str_]
    probability: NDArray[np.floating]
    predictable: Sequence[str] = ()

    def with_predictions(
        self,
        numbers: Sequence[int] | slice,
        predicted: Tensor,
        probability: Tensor,
        classes: Sequence[str],
    ) -> PageImages:
        """Return these images with predictions for M of them.

        Args:
            numbers: M numbers among the N images.
            predicted: int64 ``(M,)``, indices into ``classes``.
            probability: floating ``(M,)``.
            classes: the class names; an empty one is no prediction.
        """
        names = np.array(classes)
        predicted_names = np.full(len(self.rows), "", names.dtype)
        predicted_names[numbers] = names[predicted]
        probabilities = np.zeros(len(self.rows))
        probabilities[numbers] = probability
        predictable = [name for name in classes if name]
        return replace(
            self, predicted=predicted_names, probability=probabilities, predictable=predictable
        )

    @cached_property
    def _paths(self) -> list[str]:
        return [os.path.abspath(self.source.path_of(row)) for row in self.rows]

    @cached_property
    def folder(self) -> str:
        """The innermost folder that contains all images."""
        return os.path.commonpath({os.path.dirname(path) for path in self._paths})

    def name(self, number: int) -> str:
        """Return one of the N file names, relative to :attr:`folder`."""
        return printable(os.path.relpath(self._paths[number], self.folder))

    def picture(self, number: int) -> str:
        """Return one of the N images as a ``data:`` URL."""
        pixels, _ = self.source.load(self.rows[number], _SIDE, self.display.reading)
        return data_url(self.display.colors(center_crop(pixels, _SIDE)))

    @property
    def is_compared(self) -> NDArray[np.bool_]:
        """Whether each image has a prediction, and a label that could have been predicted."""
        return (self.predicted != "") & np.isin(self.labels, self.predictable)

    @property
    def mistakes(self) -> list[int]:
        """The images whose prediction contradicts the label, the most probable one first."""
        is_wrong = self.is_compared & (self.predicted != self.labels)
        return self._by_probability(is_wrong)[::-1]

    @property
    def strips(self) -> dict[str, list[int]]:
        """The images by predicted class, least certain first; the most frequent class is first."""
        counts = Counter(sorted(self.predicted[self.predicted != ""].tolist()))
        return {
            name: self._by_probability(self.predicted == name) for name, _ in counts.most_common()
        }

    @property
    def confusion(self) -> dict[str, list[int]]:
        """The number of images for each label and prediction, in the order of the classes."""
        from sklearn.metrics import confusion_matrix

        compared = self.is_compared
        names = list(self.predictable)
        counts = confusion_matrix(self.labels[compared], self.predicted[compared], labels=names)
        return dict(zip(names, counts.tolist(), strict=True))

    def _by_probability(self, is_chosen: NDArray[np.bool_]) -> list[int]:
        """Return the chosen images' numbers, the least probable first."""
        order = np.argsort(self.probability, kind="stable")
        numbers: list[int] = order[is_chosen[order]].tolist()
        return numbers


def page_images(
    source: ImageSource,
    rows: Sequence[int],
    display: Display,
    labels: NDArray[np.str_] | None = None,
) -> PageImages:
    """Return some of a source's images, without predictions.

    Args:
        source: the images.
        rows: N rows in the source.
        display: colors of their pictures.
        labels: class names, ``(N,)``; None: from the source, if it has labels.
    """
    no_names = np.full(len(rows), "")
    if labels is None:
        labels = no_names
        with suppress(NoLabels):
            labels = label_names(source.classes, source.labels()[rows])
    return PageImages(source, rows, display, labels, no_names, np.zeros(len(rows)))


def label_names(classes: Sequence[str], indices: NDArray[np.int64]) -> NDArray[np.str_]:
    """Return class names for indices ``(N,)``; empty for unlabeled images."""
    return np.array([*classes, ""])[indices]  # the last entry is for NO_CLASS, −1


def data_url(image: Tensor, quality: int = 80) -> str:
    """Return an RGB image, uint8 ``(3, H, W)``, as the ``data:`` URL of a JPEG.

    Args:
        image: the image.
        quality: JPEG quality, 1 to 95.
    """
    stream = io.BytesIO()
    as_image(image).save(stream, "JPEG", quality=quality, subsampling=0)  # sharp colors
    return "data:image/jpeg;base64," + base64.b64encode(stream.getvalue()).decode()
