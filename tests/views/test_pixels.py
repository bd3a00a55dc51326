"""Images of any kind as pixels."""

import numpy as np
import pytest
import torch
from PIL import Image

from pirl_plugin.views.pixels import as_pixels

pytestmark = pytest.mark.tensors


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
