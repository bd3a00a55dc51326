"""Which images are decoded or refused: deep TIFFs, large images, other files."""

import io
import os

import numpy as np
import pytest
from PIL import Image

from pirl_plugin.images.decode import UnreadableImageError, decode_image, read_file
from pirl_plugin.images.opening import FolderSource
from tests.helpers.tiff import tiff


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_tiff__of_32_bit_values_is_unreadable(dtype, folder, caplog):
    Image.fromarray(np.arange(12, dtype=dtype).reshape(3, 4)).save(folder / "a" / "0.tif")
    assert [valid for _, valid in FolderSource(folder)] == [False, True, True]
    assert f"{np.dtype(dtype)} of shape" in caplog.text


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("planes", [False, True])
@pytest.mark.parametrize(("photometric", "channels"), [(0, 1), (1, 1), (2, 3), (2, 4)])
def test_tiff__is_decoded_correctly_or_refused(photometric, channels, planes, dtype):
    pytest.importorskip("tifffile", reason="needs pip install pirl-plugin[tiff]")
    most = np.iinfo(dtype).max
    values = np.random.default_rng(0).integers(0, most + 1, (6, 5, channels)).astype(dtype)
    pixels = decode_image(tiff(values, planes, photometric)).permute(1, 2, 0).numpy()
    expected = most - values if photometric == 0 else values
    if pixels.shape == values.shape and pixels.dtype == dtype:
        np.testing.assert_array_equal(pixels, expected)
    else:  # PIL converts to 8-bit RGB
        scaled = np.broadcast_to(expected[..., :3] * (255 / most), (6, 5, 3))
        assert abs(pixels - scaled).max() <= 1


def test_large_image__is_refused_unless_limit_is_raised():
    file = io.BytesIO()
    Image.new("1", (9000, 8000)).save(file, "PNG")
    with pytest.raises(UnreadableImageError, match=r"9000 × 8000 pixels: expected at most 64 meg"):
        decode_image(file.getvalue())


def test_pipe__is_refused(folder):
    os.mkfifo(folder / "a" / "0.jpg")
    assert [valid for _, valid in FolderSource(folder)] == [False, True, True]
    with pytest.raises(OSError, match="not a regular file"):
        read_file(str(folder / "a" / "0.jpg"))


def test_reason__shows_start_of_file():
    with pytest.raises(UnreadableImageError, match="begin with b'<html>'"):
        decode_image(b"<html>")
