"""Photometric augmentation: drawing its parameters.

The operations and their order are those of VISSL's PIRL: colour jitter in random order, then
with one probability posterize, sharpness, solarize and autocontrast together, then equalize (named
in the paper, off by default), greyscale, blur (off by default) and a horizontal flip.
"""

import functools
import math
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from pirl_plugin.images.columns import (
    DRAWS,
    NUM_COLUMNS,
)
from pirl_plugin.utils.kinds import number
from pirl_plugin.utils.value_checks import refuse
from pirl_plugin.views.kernels.parameters import (
    BLUR_HIGH,
    BLUR_LOW,
    BLUR_P,
    EQUALIZE_P,
    EXTRAS_P,
    FLIP_P,
    GREY_P,
    JITTER_P,
    NUM_CHANCES,
    fill_rows,
)


@dataclass(frozen=True)
class Photometric:
    """Parameters of the photometric augmentation; a row is drawn for each view on its own.

    Attributes:
        brightness: factor uniform in [1 − brightness, 1 + brightness], not below 0.
        contrast: as for ``brightness``.
        saturation: as for ``brightness``.
        hue: shift uniform in [−hue, hue] turns of the colour circle, at most 0.5.
        jitter_p: probability of the four above (together).
        photometric_p: probability of posterize, sharpness, solarize and autocontrast (together).
        equalize_p: probability of histogram equalisation.
        grayscale_p: probability of greyscale.
        blur_p: probability of a Gaussian blur.
        blur_sigma: smallest and largest standard deviation of the Gaussian blur, pixels.
        flip_p: probability of a horizontal flip.

    Raises:
        ValueError: if a parameter is out of its range.
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
    blur_sigma: tuple[float, float] = (0.1, 2.0)
    flip_p: float = 0.5

    def __post_init__(self) -> None:
        limits = {"hue": 0.5, "brightness": math.inf, "contrast": math.inf, "saturation": math.inf}
        for name in (field.name for field in fields(self) if field.name != "blur_sigma"):
            limit = limits.get(name, 1.0)
            kind = number(0, limit, expected=f"a number in [0, {limit:g}]")
            kind.check(name, getattr(self, name), "set it to such a number; 0 is off")
        try:
            low, high = (float(sigma) for sigma in self.blur_sigma)
        except (TypeError, ValueError):
            low, high = 0.0, 0.0
        if not 0 < low <= high < math.inf:
            expected = "[smallest, largest], standard deviations in pixels above 0"
            refuse("blur_sigma", self.blur_sigma, expected, "set it to a pair, as [0.1, 2.0]")

    def sample(self, rng: np.random.Generator, num_views: int) -> NDArray[np.float32]:
        """Draw the parameters of some views, each on its own.

        Args:
            rng: generator to draw from; it gives 20 numbers a view whatever the parameters.
            num_views: how many.

        Returns:
            float32 (num_views, NUM_COLUMNS). Columns: ``FLIP``, ``GREY``, ``EXTRAS``, ``EQUALIZE``
            0 or 1; ``ORDER`` and the next three the order of brightness 0, contrast 1, saturation
            2, hue 3; ``BRIGHTNESS``, ``CONTRAST``, ``SATURATION``, ``SHARPNESS`` factors; ``HUE``
            turns; ``POSTERIZE`` bits; ``SOLARIZE`` threshold; ``BLUR`` deviation in pixels, 0 for
            none. Factors of 1 and a hue of 0 mean that the operation is skipped.
        """
        rows = np.empty((num_views, NUM_COLUMNS), np.float32)
        fill_rows(rng.random((num_views, DRAWS)), *self._limits, rows)
        return rows

    @functools.cached_property
    def _limits(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """The jitter's ranges and the probabilities, as ``fill_rows`` takes them."""
        spans = np.array([self.brightness, self.contrast, self.saturation], np.float64)
        low = np.append(np.maximum(0.0, 1.0 - spans), -float(self.hue))
        high = np.append(1.0 + spans, float(self.hue))
        chances = np.empty(NUM_CHANCES)
        chances[[FLIP_P, GREY_P, JITTER_P]] = self.flip_p, self.grayscale_p, self.jitter_p
        chances[[EXTRAS_P, EQUALIZE_P, BLUR_P]] = self.photometric_p, self.equalize_p, self.blur_p
        chances[[BLUR_LOW, BLUR_HIGH]] = self.blur_sigma
        return low, high, chances
