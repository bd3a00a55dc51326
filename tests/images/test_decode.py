"""Every format comes out as PIL shows it, upright; nothing but one error type comes out else."""

import io
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from pirl_plugin.images import decode
from pirl_plugin.images.decode import UnreadableImageError, decode_image


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


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "JPEG"])
@pytest.mark.parametrize("exif", [b"Exif\0\0garbage!", b"Exif\0\0II*\0", b"Exif\0\0"])
def test_decode__takes_an_image_whose_exif_is_damaged(kind, exif):
    """Its pixels were decoded, and then thrown away for the tag."""
    data = encode(smooth(), kind, exif=exif)
    expected = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    np.testing.assert_array_equal(pixels(data), expected)


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
    with pytest.raises(UnreadableImageError, match=reason) as refused:
        decode_image(data)
    assert ".cpp" not in str(refused.value)  # where torchvision was built


@pytest.mark.parametrize(
    ("case", "a_pixel"),
    [("jpeg", 10), ("png", 10), ("webp", 20), ("jpeg_progressive", 10 + 3 * 2)],
)
def test_decode__refuses_bombs_before_decoding(case, a_pixel, monkeypatch):
    """PIL's WebP decoder keeps more beside the pixels; 2 bytes are a coefficient of a component."""
    data = CASES[case]()
    decode_image(data, max_bytes=a_pixel * 48 * 64)
    monkeypatch.setattr(decode, "MAX_BYTES", a_pixel * 48 * 64 - 1)
    with pytest.raises(UnreadableImageError, match="64 × 48 pixels and would take"):
        decode_image(data)


def test_decode__a_scaled_jpeg_may_have_more_pixels_than_pil_opens(monkeypatch):
    """PIL's own limit refused those above 179 million pixels, whatever they are decoded at."""
    data = encode(smooth(3000, 3040, channels=1), "JPEG")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10**6)  # twice that is refused
    assert pixels(data).shape == (750, 760, 3)


@pytest.mark.parametrize("damage", ["zeros", "early end"])
def test_decode__a_jpeg_damaged_in_its_scan_is_valid_as_with_pil(damage):
    whole = encode(smooth(128, 128), "JPEG", quality=95)
    middle, data = (whole.index(b"\xff\xda") + len(whole)) // 2, bytearray(whole)
    if damage == "zeros":
        data[middle : middle + 100] = bytes(100)
    else:
        data[middle:] = b"\xff\xd9"
    found = pixels(bytes(data))
    assert np.array_equal(found, reference(data))
    assert not np.array_equal(found, pixels(whole))
    assert damage == "zeros" or (found[100:] == 128).all()


def test_decode__damaged_files_never_raise_anything_else(monkeypatch):
    monkeypatch.setattr(decode, "MAX_BYTES", 8 * 10**6)
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


_PEAK = """
import io, re, sys, numpy
from PIL import Image
from pirl_plugin.images.decode import decode_image

side, kind, options = int(sys.argv[1]), sys.argv[2], eval(sys.argv[3])
file = io.BytesIO()
image = Image.fromarray(numpy.random.default_rng(0).integers(0, 256, (9, 9, 3), dtype="uint8"))
image.save(file, kind, **options)
decode_image(file.getvalue())  # the decoders are loaded
file = io.BytesIO()
image.resize((side, side)).save(file, kind, **options)


def megabytes(name):
    return int(re.search(name + r":\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024


before = megabytes("VmRSS")
decode_image(file.getvalue(), max_bytes=2**27, scaled_to=0)
print(megabytes("VmHWM") - before)
"""


@pytest.mark.parametrize(
    ("kind", "options", "a_pixel"),
    [("PNG", {"compress_level": 1}, 10), ("JPEG", {"progressive": True, "subsampling": 0}, 16)],
)
def test_decode__allocates_no_more_than_it_says(kind, options, a_pixel):
    """The largest image that is decoded in 128 MiB, in a process of its own."""
    side = int((2**27 / a_pixel) ** 0.5)
    command = [sys.executable, "-c", _PEAK, str(side), kind, repr(options)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert 20 < float(done.stdout) < 128 * 1.05


def test_decode__too_little_memory_is_named(monkeypatch):
    def exhausted(*args):
        raise MemoryError

    monkeypatch.setattr(decode, "decode_jpeg", exhausted)
    with pytest.raises(UnreadableImageError, match="there is too little memory to decode it"):
        decode_image(CASES["jpeg"]())


def test_decode__never_runs_ghostscript():
    eps = encode(smooth(), "EPS")
    with pytest.raises(UnreadableImageError, match="cannot identify"):
        decode_image(eps)


def test_decode__below_the_scaled_size_is_as_pil_decodes(monkeypatch):
    data = encode(smooth(48, 200), "JPEG")
    monkeypatch.setattr(decode, "_SCALED_TO", 6)
    monkeypatch.setattr(decode, "SCALED_ABOVE", 49)
    np.testing.assert_array_equal(pixels(data), reference(data))
    monkeypatch.setattr(decode, "SCALED_ABOVE", 48)
    assert pixels(data).shape == (6, 25, 3)


@pytest.mark.parametrize(
    ("shorter", "scale"), [(1500, 1), (2999, 1), (3000, 4), (5999, 4), (6000, 8), (50_000, 8)]
)
def test_scale__leaves_750_pixels_of_large_images_alone(shorter, scale):
    assert decode._scale(shorter, None) == scale
    assert decode._scale(shorter, 0) == 1


@pytest.mark.parametrize(
    ("shorter", "scale"), [(511, 1), (1023, 1), (1024, 2), (2048, 4), (4096, 8), (9000, 8)]
)
def test_scale__leaves_what_was_asked_for(shorter, scale):
    assert decode._scale(shorter, 512) == scale


def with_grain(height, width):
    """Smooth, with grain and edges every 80 pixels."""
    rng = np.random.default_rng(0)
    image = np.asarray(smooth(height, width)) + rng.integers(-9, 10, (height, width, 1))
    image[:, ::80] -= 60
    return image


def one_over_f(height, width):
    """Noise whose amplitude falls as 1 / frequency: more detail than photos of this size have."""
    white = np.random.default_rng(0).standard_normal((height, width), dtype=np.float32)
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width))
    frequency[0, 0] = np.inf
    noise = np.fft.irfft2(np.fft.rfft2(white) / frequency, s=white.shape)
    return (120 + 50 * noise / noise.std())[..., None].repeat(3, axis=2)


@pytest.mark.parametrize(
    ("content", "options", "orientation", "tolerances"),
    [
        (with_grain, {"progressive": True}, 1, (0.4, 0.6, 1.3)),
        (with_grain, {"subsampling": 0}, 6, (0.4, 0.6, 1.3)),
        (one_over_f, {}, 1, (0.4, 1.1, 3.9)),
    ],
)
def test_decode__of_large_jpegs_is_scaled_within_a_tolerance(
    content, options, orientation, tolerances
):
    """Crops of the scaled image, resized, against PIL's of the whole."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    image = Image.fromarray(np.clip(content(3000, 3120), 0, 255).astype(np.uint8))
    data = encode(image, "JPEG", quality=90, exif=exif, **options)
    scaled, whole = Image.fromarray(pixels(data)), Image.fromarray(reference(data))
    assert scaled.size == (whole.width // 4, whole.height // 4)
    for share, tolerance in zip((1.0, 0.6, 0.3), tolerances, strict=True):  # sides of the crops
        side = share * min(scaled.size)
        crops = [
            each.crop((0, 0, round(side * k), round(side * k))).resize((224, 224), 2)
            for each, k in ((scaled, 1), (whole, 4))
        ]
        difference = np.abs(np.asarray(crops[0], float) - np.asarray(crops[1], float))
        assert difference.mean() < tolerance, share
