"""Every format comes out as PIL shows it, upright; nothing but one error type comes out else."""

import io

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from pirl_plugin.data import decode
from pirl_plugin.data.decode import UnreadableImageError, decode_image


def smooth(height=48, width=64, channels=3, seed=0):
    rng = np.random.default_rng(seed)
    small = rng.integers(0, 256, (5, 6, channels), dtype=np.uint8)
    image = Image.fromarray(small[..., 0] if channels == 1 else small)
    return image.resize((width, height), Image.Resampling.BICUBIC)


def encode(image, kind, **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def reference(data):
    image = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    return np.asarray(image.convert("RGB"))


def pixels(data):
    decoded = decode_image(data)
    assert decoded.dtype == torch.uint8
    assert decoded.shape[0] == 3
    return decoded.permute(1, 2, 0).numpy()


CASES = {
    "jpeg": lambda: encode(smooth(), "JPEG"),
    "jpeg_444": lambda: encode(smooth(), "JPEG", subsampling=0, quality=95),
    "jpeg_odd_size": lambda: encode(smooth(37, 51), "JPEG"),
    "jpeg_progressive": lambda: encode(smooth(), "JPEG", progressive=True),
    "jpeg_grey": lambda: encode(smooth(channels=1), "JPEG"),
    "jpeg_cmyk": lambda: encode(smooth().convert("CMYK"), "JPEG"),
    "png": lambda: encode(smooth(), "PNG"),
    "png_grey": lambda: encode(smooth(channels=1), "PNG"),
    "png_alpha": lambda: encode(smooth(channels=4), "PNG"),
    "png_palette": lambda: encode(smooth().convert("P"), "PNG", transparency=3),
    "png_1_bit": lambda: encode(smooth().convert("1"), "PNG"),
    "gif": lambda: encode(smooth().convert("P"), "GIF"),
    "webp": lambda: encode(smooth(), "WEBP"),
    "bmp": lambda: encode(smooth(), "BMP"),
    "tiff": lambda: encode(smooth(), "TIFF"),
    "ppm": lambda: encode(smooth(), "PPM"),
}


@pytest.mark.parametrize("case", CASES)
def test_decode__equals_pil(case):
    data = CASES[case]()
    np.testing.assert_array_equal(pixels(data), reference(data))


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_decode__honours_exif_orientation(kind, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encode(smooth(), kind, exif=exif)
    assert pixels(data).shape == ((48, 64, 3) if orientation < 5 else (64, 48, 3))
    np.testing.assert_array_equal(pixels(data), reference(data))


def test_decode__is_the_same_without_torchvisions_decoder(monkeypatch):
    fast = pixels(CASES["jpeg"]())
    monkeypatch.setattr(decode, "decode_jpeg", None)
    np.testing.assert_array_equal(pixels(CASES["jpeg"]()), fast)


def test_decode__first_frame_of_an_animation():
    frames = [smooth(seed=seed) for seed in (1, 2)]
    data = encode(frames[0], "PNG", save_all=True, append_images=frames[1:])
    np.testing.assert_array_equal(pixels(data), np.asarray(frames[0]))


def test_decode__scales_16_bits_instead_of_clipping():
    ramp = np.linspace(0, 65535, 256).astype(np.uint16)[None].repeat(8, axis=0)  # steps of 257
    data = encode(Image.fromarray(ramp), "PNG")
    np.testing.assert_array_equal(pixels(data)[0, :, 0], np.arange(256))


@pytest.mark.parametrize(("full", "expected"), [(1.0, 255), (255.0, 255), (1000.0, 255)])
def test_decode__scales_floats_by_the_range_they_use(full, expected):
    grey = np.array([[0.0, full / 2, full]], np.float32)
    level = pixels(encode(Image.fromarray(grey), "TIFF"))[0, :, 0]
    assert level[0] == 0
    # 1000 is taken as part of a 16-bit range: round(1000 · 255 / 65535) = 4
    assert level[2] == (expected if full != 1000.0 else 4)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty"),
        (b"\xff\xd8\xff", "bytes"),
        (b"hello, this is no image", "cannot identify"),
        (CASES["jpeg"]()[:-300], "incomplete|truncated"),
        (CASES["png"]()[:-300], "truncated"),
        (CASES["jpeg_cmyk"]()[:-300], "truncated"),
    ],
)
def test_decode__says_why_not(data, reason):
    with pytest.raises(UnreadableImageError, match=reason):
        decode_image(data)


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_decode__refuses_bombs_before_decoding(kind, monkeypatch):
    monkeypatch.setattr(decode, "MAX_PIXELS", 48 * 64 - 1)
    with pytest.raises(UnreadableImageError, match="64 × 48 pixels, more than the 3071"):
        decode_image(encode(smooth(), kind))


def test_decode__damaged_files_never_raise_anything_else(monkeypatch):
    monkeypatch.setattr(decode, "MAX_PIXELS", 10**6)
    rng = np.random.default_rng(0)
    originals = [CASES[name]() for name in ("jpeg", "jpeg_progressive", "jpeg_cmyk", "png", "gif")]
    outcomes = {"decoded": 0, "refused": 0}
    for trial in range(600):
        data = bytearray(originals[trial % len(originals)])
        head = len(data) if trial % 2 else 200  # headers as often as pixels
        for at in rng.integers(0, head, size=rng.integers(1, 8)):
            data[at] = rng.integers(256)
        if trial % 7 == 0:
            del data[rng.integers(1, len(data)) :]
        try:
            decode_image(bytes(data))
            outcomes["decoded"] += 1
        except UnreadableImageError:
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 50
