"""Pixels from arrays, tensors and PIL images."""

import numpy as np
import pytest
import torch
from PIL import Image

from pirl_plugin.views.pixels import as_pixels, as_rgb

pytestmark = pytest.mark.tensors


def test_as_pixels__keeps_channels_and_dtype(subtests):
    for dtype in (np.uint8, np.uint16, np.float32):
        for channels in (1, 2, 3, 4, 30):
            with subtests.test(dtype=dtype, channels=channels):
                array = np.arange(60 * 50 * channels).reshape(60, 50, channels).astype(dtype)
                pixels = as_pixels(array)
                assert pixels.shape == (channels, 60, 50)
                assert np.array_equal(pixels.permute(1, 2, 0).numpy(), array)
                assert torch.equal(as_pixels(pixels), pixels)
                assert torch.equal(as_pixels(array.astype(array.dtype.newbyteorder())), pixels)
                assert np.array_equal(as_pixels(array[:, ::-1]).numpy(), np.flip(pixels.numpy(), 2))
    assert as_pixels(np.zeros((6, 5), np.uint16)).shape == (1, 6, 5)


def test_as_pixels__refuses_tensor_with_channels_last():
    with pytest.raises(ValueError, match=r"expected \(C, H, W\)"):
        as_pixels(torch.zeros(80, 80, 3, dtype=torch.uint8))


def test_as_pixels__converts_pil_to_rgb_or_16_bit_gray():
    levels = np.array([[0, 300, 65_535]], np.uint16)
    assert as_pixels(Image.fromarray(levels)).tolist() == [levels.tolist()]
    floats = np.array([[-1.5, 0.25]], np.float32)
    assert as_pixels(Image.fromarray(floats)).tolist() == [floats.tolist()]
    for mode in ("L", "1", "P", "RGBA", "CMYK"):
        assert as_pixels(Image.new(mode, (5, 4))).shape == (3, 4, 5)


def test_as_rgb__scales_16_bit_gray_and_refuses_wider_values():
    deep = Image.fromarray(np.array([[0, 128 * 257, 65_535]], np.uint16))
    assert as_rgb(deep)[0].tolist() == [[0, 128, 255]]
    for dtype in (np.float32, np.int32):
        with pytest.raises(ValueError, match=r"float32 of shape .*: expected"):
            as_rgb(Image.fromarray(np.zeros((1, 3), dtype)))


def test_as_rgb__repeats_gray_and_drops_alpha():
    gray = np.arange(6, dtype=np.uint8).reshape(2, 3, 1)
    expected = torch.from_numpy(gray[None, :, :, 0]).expand(3, -1, -1)
    assert torch.equal(as_rgb(gray), expected)
    assert as_rgb(np.zeros((8, 8, 4), np.uint8)).shape == (3, 8, 8)
    with pytest.raises(ValueError, match=r"uint8 of shape \(2, 8, 8\): expected RGB or gray"):
        as_rgb(np.zeros((8, 8, 2), np.uint8))
