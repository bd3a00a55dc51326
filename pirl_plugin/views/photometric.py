"""Photometric augmentation: draw its parameters.

The operations and their order are as in VISSL's PIRL: colour jitter in random order; then, with one
probability, posterize, sharpness, solarize and autocontrast together; then equalize (in the paper,
off by default), greyscale, blur (off by default) and a horizontal flip.
"""

import functools
import math
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from pirl_plugin.failures import Refused
from pirl_plugin.kernel_cache import cached_kernel

# Columns of a row of parameters, and of its uniform draws.
FLIP, GREY, ORDER, BRIGHTNESS, CONTRAST, SATURATION, HUE = 0, 1, 2, 6, 7, 8, 9
EXTRAS, POSTERIZE, SHARPNESS, SOLARIZE, EQUALIZE, BLUR = 10, 11, 12, 13, 14, 15
NUM_COLUMNS = 16
DRAWS = 20  # one for each column, the two below, and two unused
_JITTER_DRAW, _BLUR_DRAW = 16, 17

# Ranges of VISSL's ``ImgPilRandomPhotometric``: 4 to 8 bits, factor 0.1 to 1.9, threshold 0 to 256.
_BITS, _NUM_BITS = 4, 5
_SHARP, _SHARP_SPAN = 0.1, 1.8
_NUM_THRESHOLDS = 257

# Positions in ``chances``: probabilities, and the limits of the blur.
_FLIP_P, _GREY_P, _JITTER_P, _EXTRAS_P, _EQUALIZE_P, _BLUR_P, _BLUR_LOW, _BLUR_HIGH = range(8)

_LIMITS = {"hue": 0.5, "brightness": math.inf, "contrast": math.inf, "saturation": math.inf}


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
    blur_sigma: tuple[float, float] = (0.1, 2.0)
    flip_p: float = 0.5

    def __post_init__(self) -> None:
        for name in (field.name for field in fields(self) if field.name != "blur_sigma"):
            value = getattr(self, name)
            limit = _LIMITS.get(name, 1.0)
            if not 0 <= value <= limit or value == math.inf:
                raise Refused(
                    f"{name} = {value}: expected a number in [0, {limit:g}]; 0 switches it off"
                )
        low, high = self.blur_sigma
        if not 0 < low <= high < math.inf:
            raise Refused(
                f"blur_sigma = {self.blur_sigma}: expected two deviations in pixels, such as "
                f"[0.1, 2.0]; blur_p = 0 switches the blur off"
            )

    def sample(self, rng: np.random.Generator, num_views: int) -> NDArray[np.float32]:
        """Draw the parameters of several views independently.

        Args:
            rng: generator to draw from; a view always takes 20 numbers.
            num_views: number of views.

        Returns:
            float32 (num_views, NUM_COLUMNS). Columns: ``FLIP``, ``GREY``, ``EXTRAS``, ``EQUALIZE``:
            0 or 1; ``ORDER`` and the next three: order of brightness 0, contrast 1, saturation 2
            and hue 3; ``BRIGHTNESS``, ``CONTRAST``, ``SATURATION``, ``SHARPNESS``: factors;
            ``HUE``: turns; ``POSTERIZE``: bits; ``SOLARIZE``: threshold; ``BLUR``: deviation in
            pixels, 0 for none. With a factor of 1 or a hue of 0, the operation is skipped.
        """
        rows = np.empty((num_views, NUM_COLUMNS), np.float32)
        _fill_rows(rng.random((num_views, DRAWS)), *self._limits, rows)
        return rows

    @functools.cached_property
    def _limits(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Lowest and highest factors (4,), and ``chances`` (8,), for ``_fill_rows``."""
        spans = np.array([self.brightness, self.contrast, self.saturation], np.float64)
        low = np.append(np.maximum(0.0, 1.0 - spans), -float(self.hue))
        high = np.append(1.0 + spans, float(self.hue))
        probabilities = (
            self.flip_p, self.grayscale_p, self.jitter_p, self.photometric_p, self.equalize_p,
            self.blur_p,
        )  # fmt: skip
        return low, high, np.array([*probabilities, *self.blur_sigma], np.float64)


@cached_kernel
def _fill_rows(draws, low, high, chances, rows):
    """Turn uniform draws into rows of parameters, in one compiled call instead of thirty of numpy.

    Args:
        draws: float64 (n, DRAWS), uniform in [0, 1).
        low: float64 (4,), smallest factor of brightness, contrast and saturation, and hue shift.
        high: float64 (4,), the largest values.
        chances: float64 (8,), probabilities and the blur's limits, by the names above.
        rows: float32 (n, NUM_COLUMNS), filled; see ``Photometric.sample``.
    """
    for v in range(rows.shape[0]):
        draw, row = draws[v], rows[v]
        row[FLIP] = draw[FLIP] < chances[_FLIP_P]
        row[GREY] = draw[GREY] < chances[_GREY_P]
        for place in range(4):  # insertion sort of the draws gives the order
            at = place
            while at > 0 and draw[ORDER + int(row[ORDER + at - 1])] > draw[ORDER + place]:
                row[ORDER + at] = row[ORDER + at - 1]
                at -= 1
            row[ORDER + at] = place
        if draw[_JITTER_DRAW] >= chances[_JITTER_P]:
            row[BRIGHTNESS:HUE] = 1.0
            row[HUE] = 0.0
        else:
            for k in range(4):
                row[BRIGHTNESS + k] = low[k] + draw[BRIGHTNESS + k] * (high[k] - low[k])
        row[EXTRAS] = draw[EXTRAS] < chances[_EXTRAS_P]
        row[POSTERIZE] = _BITS + np.floor(draw[POSTERIZE] * _NUM_BITS)
        row[SHARPNESS] = _SHARP + draw[SHARPNESS] * _SHARP_SPAN
        row[SOLARIZE] = np.floor(draw[SOLARIZE] * _NUM_THRESHOLDS)
        row[EQUALIZE] = draw[EQUALIZE] < chances[_EQUALIZE_P]
        row[BLUR] = 0.0
        if draw[BLUR] < chances[_BLUR_P]:
            span = chances[_BLUR_HIGH] - chances[_BLUR_LOW]
            row[BLUR] = chances[_BLUR_LOW] + draw[_BLUR_DRAW] * span
