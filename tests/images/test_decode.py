"""Which images are decoded, by what, or refused: JPEGs, deep TIFFs, large images, other files."""

import io
import os

import pytest
from PIL import Image

from pirl_plugin.images.decode import (
    UnreadableImageError,
    decode_jpeg,
    read_file,
)
from pirl_plugin.images.folders import FolderSource
from tests.helpers.images import decode_image


@pytest.mark.skipif(decode_jpeg is None, reason="this torchvision has no image operators")
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_ordinary_jpeg__is_decoded_and_turned_without_pil(mode, monkeypatch):
    exif = Image.Exif()
    exif[0x0112] = 6  # orientation: a quarter turn
    file = io.BytesIO()
    Image.new(mode, (40, 30)).save(file, "JPEG", exif=exif)
    monkeypatch.setattr(Image, "open", None)
    assert decode_image(file.getvalue()).shape == (3, 40, 30)


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
