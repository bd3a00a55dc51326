"""Images normalised for a model: the shapes that are taken."""

import math

import numpy as np
import pytest
import torch
from PIL import Image

from pirl_plugin.views.pixels import as_pixels, normalize_images

pytestmark = pytest.mark.tensors


def test_normalize_images__refuses_other_shapes(subtests):
    for shape, says in (
        ((3, 8, 8), "expected .* RGB"),
        ((2, 8, 8, 3), "expected .* RGB"),
        ((2, 1, 8, 8), "expected .* RGB"),  # was broadcast to three
        ((2, 9, 3, 8, 8), r"expected uint8 \(B, 3, H, W\)"),
    ):
        with subtests.test(shape=shape), pytest.raises(ValueError, match=says):
            normalize_images(torch.zeros(shape, dtype=torch.uint8))


def test_normalize_images__refuses_impossible_constants(subtests):
    for constants in (
        {"std": [-1, -1, -1]},
        {"std": [0.2, 0, 0.2]},
        {"std": [0.2]},
        {"std": [math.nan] * 3},
        {"mean": [0.5]},
        {"mean": [math.inf, 0, 0]},
        {"mean": [123.7, 116.3, 103.5]},  # of levels from 0 to 255
        {"std": [58.4, 57.1, 57.4]},
    ):
        with subtests.test(constants=constants):
            (name,) = constants
            with pytest.raises(ValueError, match=f"{name} = .*: expected three numbers"):
                normalize_images(torch.zeros(1, 3, 2, 2, dtype=torch.uint8), **constants)


def test_grey_of_16_bits__is_scaled_and_of_32_bits_refused():
    deep = Image.fromarray(np.array([[0, 128 * 257, 65_535]], np.uint16))
    assert as_pixels(deep)[0].tolist() == [[0, 128, 255]]
    for dtype in (np.float32, np.int32):
        with pytest.raises(ValueError, match=r"32-bit values .*: expected 8 or 16 bits"):
            as_pixels(Image.fromarray(np.zeros((1, 3), dtype)))


def test_as_pixels__takes_a_grey_array_with_channels_last_only():
    grey = np.arange(6, dtype=np.uint8).reshape(2, 3, 1)
    assert torch.equal(as_pixels(grey), torch.from_numpy(grey[None, :, :, 0]).expand(3, -1, -1))
    with pytest.raises(ValueError, match=r"shape \(3, 8, 8\): expected a PIL image"):
        as_pixels(np.zeros((3, 8, 8), np.uint8))


def test_normalize_images__refuses_other_types():
    images = torch.zeros(1, 3, 2, 2, dtype=torch.uint8)
    with pytest.raises(ValueError, match=r"images are torch.float32 .*: expected uint8"):
        normalize_images(images.float())
