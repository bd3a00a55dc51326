"""Uniform draws → rows of photometric parameters, in one compiled call, not thirty of numpy."""

import numpy as np

from pirl_plugin.images.columns import (
    BLUR,
    BLUR_DRAW,
    BRIGHTNESS,
    EQUALIZE,
    EXTRAS,
    FLIP,
    GREY,
    HUE,
    JITTER_DRAW,
    ORDER,
    POSTERIZE,
    POSTERIZE_BITS,
    SHARPNESS,
    SHARPNESS_FACTORS,
    SOLARIZE,
    SOLARIZE_THRESHOLDS,
)
from pirl_plugin.utils.numba import compiled

# Indices of the probabilities and of the blur that ``fill_rows`` takes.
FLIP_P, GREY_P, JITTER_P, EXTRAS_P, EQUALIZE_P, BLUR_P, BLUR_LOW, BLUR_HIGH = range(8)
NUM_CHANCES = 8

_BITS, _NUM_BITS = POSTERIZE_BITS[0], POSTERIZE_BITS[1] - POSTERIZE_BITS[0] + 1
_FIRST, _NUM_THRESHOLDS = (
    SOLARIZE_THRESHOLDS[0],
    SOLARIZE_THRESHOLDS[1] - SOLARIZE_THRESHOLDS[0] + 1,
)
_SHARP, _SHARP_SPAN = SHARPNESS_FACTORS[0], SHARPNESS_FACTORS[1] - SHARPNESS_FACTORS[0]


@compiled
def fill_rows(draws, low, high, chances, rows):
    """Fill rows of parameters.

    Args:
        draws: float64 (n, DRAWS), uniform in [0, 1).
        low: float64 (4,), smallest brightness, contrast and saturation factor and hue shift.
        high: float64 (4,), the largest.
        chances: float64 (NUM_CHANCES,), probabilities and the blur's limits, by the names above.
        rows: float32 (n, NUM_COLUMNS), filled; see ``Photometric.sample``.
    """
    for v in range(rows.shape[0]):
        draw, row = draws[v], rows[v]
        row[FLIP] = draw[FLIP] < chances[FLIP_P]
        row[GREY] = draw[GREY] < chances[GREY_P]
        for place in range(4):  # the order that sorts the draws: insertion
            at = place
            while at > 0 and draw[ORDER + int(row[ORDER + at - 1])] > draw[ORDER + place]:
                row[ORDER + at] = row[ORDER + at - 1]
                at -= 1
            row[ORDER + at] = place
        if draw[JITTER_DRAW] >= chances[JITTER_P]:
            row[BRIGHTNESS:HUE] = 1.0
            row[HUE] = 0.0
        else:
            for k in range(4):
                row[BRIGHTNESS + k] = low[k] + draw[BRIGHTNESS + k] * (high[k] - low[k])
        row[EXTRAS] = draw[EXTRAS] < chances[EXTRAS_P]
        row[POSTERIZE] = _BITS + np.floor(draw[POSTERIZE] * _NUM_BITS)
        row[SHARPNESS] = _SHARP + draw[SHARPNESS] * _SHARP_SPAN
        row[SOLARIZE] = _FIRST + np.floor(draw[SOLARIZE] * _NUM_THRESHOLDS)
        row[EQUALIZE] = draw[EQUALIZE] < chances[EQUALIZE_P]
        row[BLUR] = 0.0
        if draw[BLUR] < chances[BLUR_P]:
            span = chances[BLUR_HIGH] - chances[BLUR_LOW]
            row[BLUR] = chances[BLUR_LOW] + draw[BLUR_DRAW] * span
