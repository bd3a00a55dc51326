"""Headers of JPEGs: what the decoder finds is what is read, however the markers deceive."""

import io

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from pirl_plugin.images import decode
from pirl_plugin.images.decode import UnreadableImageError, decode_image
from pirl_plugin.images.jpeg import JpegHeader, read_jpeg_header


def jpeg(width=64, height=48, mode="RGB", **options):
    rng = np.random.default_rng(0)
    small = Image.fromarray(rng.integers(0, 256, (5, 6, 3), dtype=np.uint8)).convert(mode)
    file = io.BytesIO()
    small.resize((width, height)).save(file, "JPEG", **options)
    return bytearray(file.getvalue())


@pytest.mark.parametrize(
    ("options", "components", "buffered"),
    [
        ({}, 3, False),
        ({"progressive": True}, 3, True),
        ({"mode": "L"}, 1, False),
        ({"mode": "CMYK"}, 4, False),
        ({"comment": b"\xff\xc0\x00\x11\x08" + bytes(12)}, 3, False),
    ],
)
def test_header__of_ordinary_files(options, components, buffered):
    assert read_jpeg_header(jpeg(**options)) == JpegHeader(48, 64, components, buffered)


def disguised(width, height):
    """A JPEG of ``width`` × ``height`` that reads as 16 × 16 if RST0 is taken to have a length.

    After SOI and RST0 come the real markers, the first of which, FF E0, would be the length: a lax
    reader skips 65,504 bytes and lands on a frame header made for it.
    """
    data = jpeg()
    frame = data.index(b"\xff\xc0")
    data[frame + 5 : frame + 9] = height.to_bytes(2, "big") + width.to_bytes(2, "big")
    disguise = data[:2] + b"\xff\xd0" + data[2:]
    disguise += bytes(4 + 0xFFE0 - len(disguise))
    return disguise + b"\xff\xc0\x00\x11\x08" + bytes([0, 16, 0, 16, 3]) + bytes(40)


def test_header__restart_markers_have_no_length():
    assert read_jpeg_header(disguised(64, 48)) == JpegHeader(48, 64, 3, False)
    assert decode_image(disguised(64, 48)).shape == (3, 48, 64)


def test_header__a_disguised_bomb_is_refused_by_its_real_size():
    assert read_jpeg_header(disguised(24_000, 24_000))[:2] == (24_000, 24_000)
    with pytest.raises(UnreadableImageError, match="24000 × 24000 pixels and would take"):
        decode_image(disguised(24_000, 24_000), scaled_to=0)


@pytest.mark.parametrize(
    "insert",
    [
        b"\xff" * 9,
        b"\x00\x01garbage",
        b"\xff\x00",
        b"\xff\x01",
        b"\xff\xd7",
        b"\xff\xfe\x00\x02",
        b"\xff\xfe\x00\x01",
    ],
    ids=["fill", "garbage", "stuffed", "TEM", "RST7", "empty comment", "length 1"],
)
def test_header__is_found_where_the_decoder_finds_it(insert):
    data = jpeg()
    data[20:20] = insert  # after the first marker, APP0
    assert read_jpeg_header(data) == JpegHeader(48, 64, 3, False)
    assert decode_image(data).shape == (3, 48, 64)


@pytest.mark.parametrize(
    "insert",
    [b"\xff\xd8", b"\xff\xd9", b"\xff\xda\x00\x08" + bytes(6)],
    ids=["second SOI", "EOI", "scan first"],
)
def test_header__is_none_where_the_decoder_gives_up(insert):
    data = jpeg()
    data[2:2] = insert
    assert read_jpeg_header(data) is None
    with pytest.raises(RuntimeError):
        decode.decode_jpeg(torch.frombuffer(data, dtype=torch.uint8), 3, True)
    with pytest.raises(UnreadableImageError, match="a damaged JPEG, without a size"):
        decode_image(data)


def turned(segments):
    """A JPEG of 64 × 48 pixels that EXIF turns upright, its APP1 segments in the given order."""
    exif = Image.Exif()
    exif[0x0112] = 6
    content = {"exif": exif.tobytes(), "xmp": b"http://ns.adobe.com/xap/1.0/\0<x:xmpmeta/>"}
    data = jpeg()
    for name in reversed(segments):
        data[2:2] = b"\xff\xe1" + (len(content[name]) + 2).to_bytes(2, "big") + content[name]
    return data


@pytest.mark.parametrize(
    ("segments", "is_exif"),
    [(["exif"], True), (["exif", "xmp"], True), (["xmp", "exif"], False), (["xmp"], False)],
)
def test_decode__turns_an_image_wherever_its_exif_is(segments, is_exif):
    data = turned(segments)
    assert read_jpeg_header(data) == JpegHeader(48, 64, 3, False, is_exif)
    upright = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    assert upright.size == ((48, 64) if "exif" in segments else (64, 48))
    assert decode_image(data).permute(1, 2, 0).tolist() == np.asarray(upright).tolist()


def test_header__never_disagrees_with_the_decoder():
    """Damaged headers: whatever the decoder decodes has the size that the header said."""
    rng = np.random.default_rng(0)
    original = jpeg(16, 24)
    decoded = 0
    for _ in range(1500):
        data = bytearray(original)
        for at in rng.integers(2, data.index(b"\xff\xda"), size=rng.integers(1, 4)):
            data[at] = rng.choice([0xFF, 0xD0, 0xC0, 0xC2, 0x00, 0x11, 0xDA])
        header = read_jpeg_header(data)
        if header is not None and header.height * header.width > 10**7:
            continue
        try:
            image = decode.decode_jpeg(torch.frombuffer(data, dtype=torch.uint8), 3, True)
        except RuntimeError:
            continue
        decoded += 1
        assert header is not None
        assert tuple(image.shape[1:]) == header[:2]
    assert decoded > 100


def test_decode__a_jpeg_of_thousands_of_scans_is_refused_at_once():
    """Each scan of a few bytes goes over the whole image: minutes for a file of a megabyte."""
    data = jpeg(progressive=True)
    end, last = data.rindex(b"\xff\xd9"), data.rindex(b"\xff\xda")
    scan = data[data.rindex(b"\xff\xc4", 0, last) : end]  # its table, too
    assert decode_image(data[:end] + 50 * scan + data[end:]).shape == (3, 48, 64)
    with pytest.raises(UnreadableImageError, match=r"JPEG of \d+ scans, more than the 100"):
        decode_image(data[:end] + 5000 * scan + data[end:])
