"""Photometric augmentation: options, and parameters drawn per view.

Operations and their order follow VISSL's PIRL: color jitter in random order; then, with one
probability, posterize, sharpness, solarize and autocontrast together; then equalize (off by
default, as in the paper), grayscale, blur (off by default) and a horizontal flip.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from pirl_plugin.system.failures import check, is_number
from pirl_plugin.system.kernel_cache import compiled

# The largest values of options; all others are at most 1.
_LIMITS = dict.fromkeys(("brightness", "contrast", "saturation"), math.inf) | {"hue": 0.5}

# The uniform draws for a view, in generator order. A new option takes the next one, so that views
# with a given seed stay the same. Some are still unused. More names than draws are an error at
# import; a larger number of draws would change the views for every seed.
_NUM_DRAWS = 20
_DRAWS = {
    "flip_p": "f8",
    "grayscale_p": "f8",
    "order": "4f8",
    "brightness": "f8",
    "contrast": "f8",
    "saturation": "f8",
    "hue": "f8",
    "photometric_p": "f8",
    "posterize": "f8",
    "sharpness": "f8",
    "solarize": "f8",
    "equalize_p": "f8",
    "blur_p": "f8",
    "jitter_p": "f8",
    "blur_sigma": "f8",
}
_DRAWS_TYPE = np.dtype(
    {"names": [*_DRAWS], "formats": [*_DRAWS.values()], "itemsize": 8 * _NUM_DRAWS}
)

# The parameters for a view, float32.
_PARAMETERS = [
    ("flip", "f4"),  # 0 or 1
    ("grayscale", "f4"),  # 0 or 1
    ("order", "f4", 4),  # order of brightness 0, contrast 1, saturation 2 and hue 3
    ("brightness", "f4"),  # factor; 1 skips the operation
    ("contrast", "f4"),  # factor; 1 skips it
    ("saturation", "f4"),  # factor; 1 skips it
    ("hue", "f4"),  # shift in turns; 0 skips it
    ("extras", "f4"),  # 0 or 1: posterize, sharpness, solarize and autocontrast
    ("posterize", "f4"),  # bits
    ("sharpness", "f4"),  # factor
    ("solarize", "f4"),  # threshold
    ("equalize", "f4"),  # 0 or 1
    ("blur", "f4"),  # standard deviation in pixels; 0 skips it
]
_PARAMETERS_TYPE = np.dtype(_PARAMETERS)

# Ranges in VISSL's ``ImgPilRandomPhotometric``: 4 to 8 bits, factor 0.1 to 1.9, threshold 0 to 256.
_FEWEST_BITS = 4
_NUM_BITS = 5
_LEAST_SHARPNESS = 0.1
_SHARPNESS_SPAN = 1.8
_NUM_THRESHOLDS = 257


@dataclass(frozen=True)
class Photometric:
    """Options for photometric augmentation; each view draws its own parameters.

    RGB images in uint8 use all options except ``channel_jitter_p``. Other images use only this one,
    ``brightness``, ``contrast`` and ``flip_p``, and each channel draws its own values. By default,
    they are only flipped, because the intensities of stains, bands or depth usually carry meaning.

    Attributes:
        brightness: factor uniform in [1 − brightness, 1 + brightness], not below 0.
        contrast: as for ``brightness``.
        saturation: as for ``brightness``.
        hue: shift uniform in [−hue, hue], in turns of the color circle, at most 0.5.
        jitter_p: probability of brightness, contrast, saturation and hue (together).
        photometric_p: probability of posterize, sharpness, solarize and autocontrast (together).
        equalize_p: probability of histogram equalization.
        grayscale_p: probability of grayscale.
        blur_p: probability of a Gaussian blur.
        blur_sigma: smallest and largest standard deviation for the Gaussian blur, in pixels.
        channel_jitter_p: probability of brightness and contrast (together).
        flip_p: probability of a horizontal flip.

    Raises:
        ValueError: an option has the wrong type or is out of range.
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
    channel_jitter_p: float = 0.0
    flip_p: float = 0.5

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.name == "blur_sigma":
                continue
            value = getattr(self, field.name)
            limit = _LIMITS.get(field.name, 1.0)
            fits = is_number(value) and 0 <= value <= limit
            check(field.name, value, fits, f"a number in [0, {limit:g}]; 0 disables it")
        limits = "two standard deviations in pixels, such as [0.1, 2.0]; blur_p = 0 disables it"
        check_limits("blur_sigma", self.blur_sigma, math.inf, limits)

    def channel_options(self) -> str:
        """Return the options, with values, that apply to images other than RGB in uint8."""
        return (
            f"flip_p={self.flip_p:g}, channel_jitter_p={self.channel_jitter_p:g} "
            f"(brightness={self.brightness:g}, contrast={self.contrast:g})"
        )

    def sample(
        self, rng: np.random.Generator, num_views: int, canvas: NDArray[Any]
    ) -> NDArray[Any]:
        """Draw parameters independently for several views.

        Args:
            rng: random generator. The number of draws does not depend on the options.
            num_views: number of views.
            canvas: (H, W, C), the image to cut them from.

        Returns:
            A structured array (num_views,), with the fields in ``_PARAMETERS`` for RGB in uint8,
            and those in :meth:`_sample_channels` for other images.
        """
        if canvas.dtype != np.uint8 or canvas.shape[2] != 3:
            return self._sample_channels(rng, num_views, canvas.shape[2])
        draws = rng.random((num_views, _NUM_DRAWS)).view(_DRAWS_TYPE)[:, 0]
        parameters = np.zeros(num_views, _PARAMETERS_TYPE)
        _set_parameters(draws, self._options, parameters)
        return parameters

    def _sample_channels(
        self, rng: np.random.Generator, num_views: int, num_channels: int
    ) -> NDArray[Any]:
        """Draw parameters for views separately for each channel."""
        per_channel = (num_channels,)
        rows = np.zeros(
            num_views,
            [
                ("flip", bool),
                ("brightness", np.float32, per_channel),  # factors
                ("contrast", np.float32, per_channel),  # factors
            ],
        )
        is_jittered = rng.random((num_views, 1)) < self.channel_jitter_p
        for name, strength in (("brightness", self.brightness), ("contrast", self.contrast)):
            factor = rng.uniform(max(0, 1 - strength), 1 + strength, (num_views, num_channels))
            rows[name] = np.where(is_jittered, factor, 1)
        rows["flip"] = rng.random(num_views) < self.flip_p
        # Unused draws, so that views with a given seed stay the same.
        rng.random((num_views, 1 + num_channels))
        return rows

    @functools.cached_property
    def _options(self) -> NDArray[Any]:
        """The options as a structured array (1,), for the compiled function."""
        types = []
        for field in fields(self):
            types.append((field.name, np.float64, np.shape(getattr(self, field.name))))
        return np.array([astuple(self)], types)


def check_limits(
    name: str, value: Sequence[float], highest: float, expected: str
) -> tuple[float, float]:
    """Return two numbers ``(low, high)`` with 0 < low <= high <= ``highest``.

    Raises:
        ValueError: they are not; the message includes ``expected``.
    """
    is_pair = isinstance(value, Sequence) and len(value) == 2 and all(map(is_number, value))
    check(name, value, is_pair and 0 < value[0] <= value[1] <= highest, expected)
    low, high = value
    return low, high


@numba.njit
def _between(low, high, draw):
    return low + draw * (high - low)


@numba.njit
def _factor(strength, draw):
    return _between(max(0.0, 1.0 - strength), 1.0 + strength, draw)


@compiled
def _set_parameters(draws, options, parameters):
    """Set the parameters from the draws, in one compiled call instead of thirty NumPy calls.

    Args:
        draws: ``_DRAWS_TYPE`` (n,), uniform in [0, 1).
        options: the options (1,).
        parameters: ``_PARAMETERS_TYPE`` (n,), overwritten.
    """
    option = options[0]
    for v in range(parameters.shape[0]):
        draw = draws[v]
        view = parameters[v]
        view.flip = draw.flip_p < option.flip_p
        view.grayscale = draw.grayscale_p < option.grayscale_p
        for operation in range(4):  # insertion sort of the draws gives the order
            at = operation
            while at > 0 and draw.order[int(view.order[at - 1])] > draw.order[operation]:
                view.order[at] = view.order[at - 1]
                at -= 1
            view.order[at] = operation
        view.brightness = 1.0
        view.contrast = 1.0
        view.saturation = 1.0
        view.hue = 0.0
        if draw.jitter_p < option.jitter_p:
            view.brightness = _factor(option.brightness, draw.brightness)
            view.contrast = _factor(option.contrast, draw.contrast)
            view.saturation = _factor(option.saturation, draw.saturation)
            view.hue = _between(-option.hue, option.hue, draw.hue)
        view.extras = draw.photometric_p < option.photometric_p
        view.posterize = _FEWEST_BITS + np.floor(draw.posterize * _NUM_BITS)
        view.sharpness = _LEAST_SHARPNESS + draw.sharpness * _SHARPNESS_SPAN
        view.solarize = np.floor(draw.solarize * _NUM_THRESHOLDS)
        view.equalize = draw.equalize_p < option.equalize_p
        view.blur = 0.0
        if draw.blur_p < option.blur_p:
            view.blur = _between(option.blur_sigma[0], option.blur_sigma[1], draw.blur_sigma)
