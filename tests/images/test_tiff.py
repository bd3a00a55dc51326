"""TIFFs as microscopes, satellites and scanners write them, and arrays in files."""

import io
import re

import numpy as np
import pytest
import torch
from PIL import Image

from pirl_plugin.images.decode import UnreadableImageError, decode
from tests.helpers.images import decode_image

tifffile = pytest.importorskip("tifffile", reason="needs pip install pirl-plugin[tiff]")

SIZE = (48, 40)
_EXTRA_SAMPLES = 338


def bands(channels, dtype=np.uint16, shape=SIZE):
    """Return an array (C, H, W)."""
    values = np.random.default_rng(channels).integers(0, 250, (channels, *shape))
    return values.astype(dtype)


def tiff(*images, **options):
    """Return a TIFF with one or more images, written one after the other."""
    file = io.BytesIO()
    with tifffile.TiffWriter(
        file, ome=options.pop("ome", False), imagej=options.pop("imagej", False)
    ) as writer:
        for image in images:
            writer.write(image, **options)
    return file.getvalue()


def last(array):
    return np.ascontiguousarray(np.moveaxis(array, 0, -1))


def without_tag(content, code):
    """Return a small TIFF with a tag renamed to one without a meaning."""
    start = int.from_bytes(content[4:8], "little")
    count = int.from_bytes(content[start : start + 2], "little")
    for entry in range(start + 2, start + 2 + 12 * count, 12):
        if int.from_bytes(content[entry : entry + 2], "little") == code:
            return content[:entry] + (65000).to_bytes(2, "little") + content[entry + 2 :]
    raise AssertionError(code)


AXES_T = {"axes": "TYX"}
LAYOUTS = {
    "default of (H, W, C)": (lambda a: tiff(last(a)), "axes H, W, C"),
    "default of (C, H, W)": (lambda a: tiff(a), ""),
    "pages without metadata": (lambda a: tiff(a, metadata=None), ""),
    "pages written one by one": (lambda a: tiff(*a), ""),
    "contiguous": (lambda a: tiff(last(a), planarconfig="contig", photometric="minisblack"), ""),
    "planes": (lambda a: tiff(a, planarconfig="separate", photometric="minisblack"), ""),
    "rgb and more": (lambda a: tiff(last(a), photometric="rgb"), ""),
    "named YXC": (lambda a: tiff(last(a), metadata={"axes": "YXC"}), ""),
    "OME": (lambda a: tiff(a, ome=True, metadata={"axes": "CYX"}), ""),
    "OME of Z": (lambda a: tiff(a, ome=True, metadata={"axes": "ZYX"}), "Z serves as channels"),
    "ImageJ": (lambda a: tiff(a, imagej=True, metadata={"axes": "CYX"}), ""),
    "ImageJ of T": (lambda a: tiff(a, imagej=True, metadata=AXES_T), "T serves as channels"),
    "tiles": (lambda a: tiff(a, tile=(16, 16), photometric="minisblack"), ""),
    "compressed": (lambda a: tiff(a, compression="zlib", photometric="minisblack"), ""),
    "thumbnail first": (lambda a: tiff(a[:, ::8, ::8], a), ""),
    "big-endian": (lambda a: tiff(a.astype(a.dtype.newbyteorder(">"))), ""),
}  # fmt: skip


@pytest.mark.parametrize("channels", [5, 13])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_tiff__is_read_with_all_channels(layout, channels, caplog):
    array = bands(channels)
    write, note = LAYOUTS[layout]
    for _ in range(2):
        np.testing.assert_array_equal(decode_image(write(array)), array)
    assert [note in message for message in caplog.messages] == [True] * bool(note)


@pytest.mark.parametrize("ome", [True, False])
def test_tiff__with_two_other_axes_is_refused(ome):
    content = tiff(
        np.zeros((4, 2, *SIZE), np.uint16), ome=ome, imagej=not ome, metadata={"axes": "ZCYX"}
    )
    with pytest.raises(UnreadableImageError, match=r"axes ZCYX\. Save one plane per file"):
        decode_image(content)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_tiff__keeps_infrared_without_its_tag(dtype):
    array = bands(4, dtype)
    content = without_tag(tiff(last(array), photometric="rgb"), _EXTRA_SAMPLES)
    np.testing.assert_array_equal(decode_image(content), array)


def test_tiff__of_rgb_gives_the_largest_page_and_the_first_of_equal_ones():
    photo = bands(3, np.uint8)
    small = photo[:, ::8, ::8]
    for pages in ((small, photo), (photo, small), (photo, 255 - photo)):
        content = tiff(*map(last, pages), photometric="rgb")
        np.testing.assert_array_equal(decode_image(content), photo)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("channels", [1, 3, 5])
def test_tiff__of_16_bits_is_turned_as_an_8_bit_one(channels, orientation):
    small = bands(channels, np.uint8)
    turned = []
    for array in (small, small.astype(np.uint16)):
        kind = "rgb" if channels == 3 else "minisblack"
        image = last(array) if channels > 1 else array[0]
        options = {"photometric": kind, "planarconfig": "contig"} if channels > 1 else {}
        tag = (274, "H", 1, orientation, True)
        turned.append(decode_image(tiff(image, extratags=[tag], **options)))
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = io.BytesIO()
    Image.fromarray(small[0]).save(file, "PNG", exif=exif)
    np.testing.assert_array_equal(turned[1][0], decode_image(file.getvalue())[0])
    assert turned[0].tolist() == (turned[1].expand(len(turned[0]), -1, -1)).tolist()


TYPES = [np.int8, np.int16, np.int32, np.uint32, np.int64, np.float16, np.float32, np.float64]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("channels", [1, 4])
@pytest.mark.parametrize("kind", ["tiff", "npy"])
def test_file__of_any_real_type_is_float32(kind, channels, dtype):
    array = bands(channels).astype(dtype)
    array[0, 1, :3] = [-7, 100, 3] if np.dtype(dtype).kind != "u" else [7, 100, 2**32 - 1]
    if kind == "tiff":
        content = tiff(array[0] if channels == 1 else array, photometric="minisblack")
    else:
        file = io.BytesIO()
        np.save(file, last(array) if channels > 1 else array[0])
        content = file.getvalue()
    pixels = decode_image(content)
    assert pixels.dtype == torch.float32
    np.testing.assert_array_equal(pixels, array.astype(np.float32))


def test_tiff__of_complex_values_is_refused_with_its_type():
    with pytest.raises(UnreadableImageError, match="complex64"):
        decode_image(tiff(np.zeros(SIZE, np.complex64)))


def test_ome_tiff__with_planes_in_other_files_is_refused():
    """tifffile fills them with zeros."""
    array = bands(2)
    file = io.BytesIO(tiff(array, ome=True, metadata={"axes": "CYX"}))
    with tifffile.TiffFile(file) as opened:
        text = opened.ome_metadata.replace('SizeC="2"', 'SizeC="4"')
    other = (
        '<TiffData FirstC="2" IFD="0" PlaneCount="2"><UUID FileName="b.ome.tif">'
        "urn:uuid:11111111-1111-1111-1111-111111111111</UUID></TiffData></Pixels>"
    )
    text = text.replace("</Pixels>", other)
    content = tiff(array, metadata=None, description=text, photometric="minisblack")
    with pytest.raises(UnreadableImageError, match="planes are in other files"):
        decode_image(content)


def test_limit__counts_pixels_and_advises_tiles():
    array = bands(13)
    file = io.BytesIO()
    np.save(file, last(array))
    for content in (tiff(array), file.getvalue()):
        assert decode_image(content, max_pixels=array[0].size).shape == array.shape
        message = re.escape("40 × 48 pixels: expected at most 0 megapixels; cut it into tiles")
        with pytest.raises(UnreadableImageError, match=message):
            decode_image(content, max_pixels=array[0].size - 1)


@pytest.mark.parametrize("channels", [1, 5])
@pytest.mark.parametrize(
    ("text", "value"), [("-9999", -9999), (" 0 ", 0), ("-3.4e+38", -3.4e38), ("none", None)]
)
def test_tiff__names_the_value_of_missing_pixels(channels, text, value):
    array = bands(channels) if channels > 1 else bands(1)[0]
    tag = (42113, "s", 0, text, True)
    assert decode(tiff(array, extratags=[tag], photometric="minisblack")).nodata == value
    assert decode(tiff(array, photometric="minisblack")).nodata is None
