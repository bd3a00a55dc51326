"""Photometric augmentation: its parameters, and draws of them.

The operations and their order are as in VISSL's PIRL: colour jitter in random order; then, with one
probability, posterize, sharpness, solarize and autocontrast together; then equalize (in the paper,
off by default), greyscale, blur (off by default) and a horizontal flip.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from pirl_plugin.system.failures import check, is_number
from pirl_plugin.views.kernels import (
    BLUR_HIGH,
    BLUR_LOW,
    BLUR_P,
    DRAWS,
    EQUALIZE_P,
    EXTRAS_P,
    FLIP_P,
    GREY_P,
    JITTER_P,
    NUM_CHANCES,
    NUM_COLUMNS,
    fill_rows,
)

_LIMITS = {"hue": 0.5, "brightness": math.inf, "contrast": math.inf, "saturation": math.inf}


class PhotometricArguments(TypedDict, total=False):
    """The parameters of :class:`Photometric`, as further arguments of views."""

    brightness: float
    contrast: float
    saturation: float
    hue: float
    jitter_p: float
    photometric_p: float
    equalize_p: float
    grayscale_p: float
    blur_p: float
    blur_sigma: Sequence[float]
    flip_p: float


@dataclass(frozen=True)
class Photometric:
    """Parameters of the photometric augmentation; each view draws its own row.

    Attributes:
        brightness: factor uniform in [1 − brightness, 1 + brightness], not below 0.
        contrast: as for ``brightness``.
        saturation: as for ``brightness``.
        hue: shift uniform in [−hue, hue] turns of the colour circle, at most 0.5.
        jitter_p: probability of brightness, contrast, saturation and hue (together).
        photometric_p: probability of posterize, sharpness, solarize and autocontrast (together).
        equalize_p: probability of histogram equalisation.
        grayscale_p: probability of greyscale.
        blur_p: probability of a Gaussian blur.
        blur_sigma: smallest and largest standard deviation of the Gaussian blur, pixels.
        flip_p: probability of a horizontal flip.

    Raises:
        ValueError: a number is out of its range.
    """

    brightness: float = 0.4
    contrast: float = 0.4
    saturation: float = 0.4
    hue: float = 0.2
    jitter_p: float = 1.0
    photometric_p: float = 0.66
    equalize_p: float = 0.0
    grayscale_p: float = 0.2
    blur_p: float = 0.0
    blur_sigma: Sequence[float] = (0.1, 2.0)
    flip_p: float = 0.5

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.name == "blur_sigma":
                continue
            value = getattr(self, field.name)
            limit = _LIMITS.get(field.name, 1.0)
            fits = is_number(value) and 0 <= value <= limit
            check(field.name, value, fits, f"a number in [0, {limit:g}]; 0 switches it off")
        limits = "two standard deviations in pixels, such as [0.1, 2.0]; blur_p = 0 switches it off"
        check_limits("blur_sigma", self.blur_sigma, math.inf, limits)

    def sample(self, rng: np.random.Generator, num_views: int) -> NDArray[np.float32]:
        """Draw the parameters of several views independently.

        Args:
            rng: generator to draw from; a view always takes 20 numbers.
            num_views: number of views.

        Returns:
            float32 (num_views, NUM_COLUMNS), with the columns of :mod:`~pirl_plugin.views.kernels`:
            ``FLIP``, ``GREY``, ``EXTRAS``, ``EQUALIZE``: 0 or 1; ``ORDER`` and the next three:
            order of brightness 0, contrast 1, saturation 2 and hue 3; ``BRIGHTNESS``, ``CONTRAST``,
            ``SATURATION``, ``SHARPNESS``: factors; ``HUE``: turns; ``POSTERIZE``: bits;
            ``SOLARIZE``: threshold; ``BLUR``: deviation in pixels, 0 for none. With a factor of 1
            or a hue of 0, the operation is skipped.
        """
        rows = np.empty((num_views, NUM_COLUMNS), np.float32)
        fill_rows(rng.random((num_views, DRAWS)), *self._limits, rows)
        return rows

    @functools.cached_property
    def _limits(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Lowest and highest factors (4,), and ``chances`` (8,), for ``fill_rows``."""
        spans = np.array([self.brightness, self.contrast, self.saturation], np.float64)
        low = np.append(np.maximum(0.0, 1.0 - spans), -float(self.hue))
        high = np.append(1.0 + spans, float(self.hue))
        chances = np.zeros(NUM_CHANCES)
        chances[FLIP_P] = self.flip_p
        chances[GREY_P] = self.grayscale_p
        chances[JITTER_P] = self.jitter_p
        chances[EXTRAS_P] = self.photometric_p
        chances[EQUALIZE_P] = self.equalize_p
        chances[BLUR_P] = self.blur_p
        chances[BLUR_LOW], chances[BLUR_HIGH] = self.blur_sigma
        return low, high, chances


def check_limits(
    name: str, value: Sequence[float], highest: float, expected: str
) -> tuple[float, float]:
    """Return two numbers ``(low, high)`` with 0 < low <= high <= ``highest``.

    Raises:
        ValueError: ``value`` is something else; the message has the text ``expected``.
    """
    is_pair = isinstance(value, Sequence) and len(value) == 2 and all(map(is_number, value))
    check(name, value, is_pair and 0 < value[0] <= value[1] <= highest, expected)
    low, high = value
    return low, high
