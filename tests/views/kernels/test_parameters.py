"""Rows of parameters: the compiled loop against numpy, bit for bit."""

import numpy as np
import pytest

from pirl_plugin.images import columns as c
from pirl_plugin.views.photometric import Photometric


def rows_in_numpy(photometric, draws):
    """The oracle: a column at a time."""
    p = photometric
    rows = np.empty((len(draws), c.NUM_COLUMNS), np.float32)
    rows[:, c.FLIP] = draws[:, c.FLIP] < p.flip_p
    rows[:, c.GREY] = draws[:, c.GREY] < p.grayscale_p
    rows[:, c.ORDER : c.ORDER + 4] = draws[:, c.ORDER : c.ORDER + 4].argsort(axis=1)
    spans = np.array([p.brightness, p.contrast, p.saturation])
    low = np.append(np.maximum(0.0, 1.0 - spans), -p.hue)
    high = np.append(1.0 + spans, p.hue)
    jitter = slice(c.BRIGHTNESS, c.HUE + 1)
    rows[:, jitter] = low + draws[:, jitter] * (high - low)
    rows[draws[:, c.JITTER_DRAW] >= p.jitter_p, jitter] = (1.0, 1.0, 1.0, 0.0)
    rows[:, c.EXTRAS] = draws[:, c.EXTRAS] < p.photometric_p
    rows[:, c.POSTERIZE] = 4 + np.floor(draws[:, c.POSTERIZE] * 5)
    rows[:, c.SHARPNESS] = 0.1 + draws[:, c.SHARPNESS] * (1.9 - 0.1)
    rows[:, c.SOLARIZE] = np.floor(draws[:, c.SOLARIZE] * 257)
    rows[:, c.EQUALIZE] = draws[:, c.EQUALIZE] < p.equalize_p
    radius = p.blur_sigma[0] + draws[:, c.BLUR_DRAW] * (p.blur_sigma[1] - p.blur_sigma[0])
    rows[:, c.BLUR] = np.where(draws[:, c.BLUR] < p.blur_p, radius, 0.0)
    return rows


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"jitter_p": 0.5, "blur_p": 0.5, "equalize_p": 0.3, "blur_sigma": (0.3, 1.7)},
        {
            "brightness": 2,
            "contrast": 0,
            "saturation": 1,
            "hue": 0,
            "flip_p": 0,
            "photometric_p": 1,
        },
    ],
)
def test_rows__equal_numpys(parameters):
    photometric = Photometric(**parameters)
    draws = np.random.default_rng(0).random((20_000, c.DRAWS))
    found = photometric.sample(np.random.default_rng(0), 20_000)
    np.testing.assert_array_equal(found, rows_in_numpy(photometric, draws))
