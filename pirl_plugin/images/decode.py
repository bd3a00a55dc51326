"""Decode image files from bytes; all failures raise one type of error.

Only the decoders in :data:`FORMATS` are used. PIL has more than forty, and selects one by a file's
first bytes, not by its name. One of them, for PostScript, starts the program Ghostscript.
"""

from __future__ import annotations

import io
import logging
import os
import stat
import struct
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import EpsImagePlugin, Image, ImageOps

from pirl_plugin.images.tiff import check_size, decode_tiff, fits_pil, nodata_of
from pirl_plugin.system.failures import Refused
from pirl_plugin.views.pixels import as_pixels, is_rgb

with suppress(ImportError):  # if installed, PIL reads HEIC
    import pillow_heif

    pillow_heif.register_heif_opener()
try:  # the operator itself, because torchvision's deprecated function warns at each call
    import torchvision.io.image  # noqa: F401 (registers the operator)

    decode_jpeg = torch.ops.image.decode_jpeg
except (ImportError, AttributeError):  # PIL gives the same pixels
    decode_jpeg = None  # type: ignore[assignment]

# Other libraries in this process, such as torchvision's ImageFolder, open images with all of PIL's
# decoders. Without a PostScript program, that decoder fails instead of starting one.
EpsImagePlugin.gs_binary = False

# PIL raises an error for a TIFF with more bands than it decodes, and logs it too.
logging.getLogger("PIL.TiffImagePlugin").setLevel(logging.CRITICAL)

Image.init()
FORMATS = tuple(
    name
    for name in ("JPEG", "PNG", "PPM", "BMP", "TIFF", "WEBP", "GIF", "AVIF", "JPEG2000", "HEIF")
    if name in Image.OPEN
)
"""PIL's names for the decoded formats, as far as this PIL supports them."""

NEEDED_SIDE = 750
"""Shorter side that 224-px views need, in pixels: JPEGs are decoded at 1/2, 1/4 or 1/8 size if that
leaves as many.

Views of JPEGs of 2,250 px and more are then 1.4 to 2.7 times as fast."""

MAX_PIXELS = 64_000_000
"""Largest image to decode, in pixels; a process needs about 12 bytes per pixel."""

CONVERTERS = {
    ".dcm": "pydicom", ".ima": "pydicom", ".nii": "nibabel", ".gz": "nibabel (for NIfTI)",
    ".h5": "h5py", ".hdf5": "h5py", ".svs": "openslide-python, which cuts tiles",
    ".ndpi": "openslide-python, which cuts tiles", ".czi": "czifile", ".nd2": "nd2",
    ".lif": "readlif",
}  # fmt: skip
"""Extension → Python package that reads the format."""

# JPEG block markers.
_SIZES = (0xC0, 0xC1, 0xC2)
_APP1 = 0xE1
# Arguments for torchvision's operator: ImageReadMode.RGB, and apply the EXIF orientation.
_RGB = 3
_UPRIGHT = True
_PNG_BITS = 24  # position of the bits per sample in a PNG
_TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
_NPY = b"\x93NUMPY"
_ORIENTATION = 0x0112  # EXIF's tag


class UnreadableImageError(ValueError):
    """An image cannot be decoded; the message gives the reason."""


READ_ERRORS = (OSError, UnreadableImageError, MemoryError)
"""What reading and decoding an image may raise."""


def open_regular(path: str, flags: int) -> int:
    """Open a regular file, as an ``opener`` for ``open``. Opening a pipe would wait for a writer.

    Raises:
        OSError: the file cannot be opened, or is a pipe or device.
    """
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path!r} is not a regular file")
    return descriptor


def read_file(path: str) -> bytearray:
    """Read a complete regular file. Raises ``OSError`` if that fails."""
    with open(path, "rb", buffering=0, opener=open_regular) as file:
        return bytearray(file.read())


class Decoded(NamedTuple):
    """A decoded image.

    Attributes:
        pixels: ``(C, H, W)`` in uint8, uint16 or float32; ordinary images are RGB, uint8
            ``(3, H, W)``.
        nodata: the value of missing pixels that the file names, or one per channel ``(C, 1, 1)``;
            None if it names none.
    """

    pixels: torch.Tensor
    nodata: Any = None

    def missing(self, nodata: float | None) -> NDArray[np.bool_] | None:
        """Return which values ``(C, H, W)`` are missing; None if the image marks none.

        Values are missing if they are NaN or the file's value. A photo, RGB in uint8 in one file,
        needs every value, so only the user's counts.

        Args:
            nodata: the user's value for missing pixels.
        """
        is_photo = is_rgb(self.pixels) and not isinstance(self.nodata, np.ndarray)
        named = None if is_photo else self.nodata
        values = [value for value in (nodata, named) if value is not None]
        if not values and not self.pixels.is_floating_point():
            return None
        array = self.pixels.numpy()
        missing: NDArray[np.bool_] = np.isnan(array)
        with np.errstate(over="ignore"):  # the value may be the lowest in float64
            for value in values:
                missing |= array == np.float32(value)
        return missing


def decode(
    data: bytes | bytearray,
    scaled_to: int | None = None,
    *,
    max_pixels: int = MAX_PIXELS,
) -> Decoded:
    """Decode an image in one of :data:`FORMATS`, upright, or an array written by ``numpy.save``.

    torchvision decodes JPEGs, because it is faster; the pixels equal PIL's bit for bit. PIL decodes
    all other ordinary images (CMYK JPEGs, PNG, GIF, WebP, …) to RGB: the first frame of an
    animation, without transparency. Grayscale images with 16 bits or floats have one channel. RGB
    PNGs and TIFFs keep 16 bits. tifffile decodes TIFFs with other bands or types.

    Args:
        data: the file's content; a ``bytearray`` saves a copy.
        scaled_to: decode a JPEG at the smallest of 1, 1/2, 1/4 and 1/8 size whose shorter side has
            at least this many pixels (libjpeg scales its DCT blocks); None: ``NEEDED_SIDE``.
        max_pixels: maximum number of pixels, at the decoded size.

    Raises:
        UnreadableImageError: the data cannot be decoded: no bytes, a damaged file, an unsupported
            format or type, or too many pixels. No other exception is raised.

    Example:
        >>> file = io.BytesIO()
        >>> Image.new("RGB", (4, 3), "red").save(file, "PNG")
        >>> decode(file.getvalue()).pixels[:, 0, 0].tolist()
        [255, 0, 0]
    """
    try:
        return _decode(data, scaled_to, max_pixels)
    except UnreadableImageError:
        raise
    except Refused as error:
        raise UnreadableImageError(str(error)) from None
    except Image.UnidentifiedImageError:
        beginning = f", which begin with {bytes(data[:24])!r}" if data else ""
        raise UnreadableImageError(
            f"it is not an image in a known format: {len(data)} bytes{beginning}"
        ) from None
    except Exception as error:  # decoders raise about ten types for damaged files
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise UnreadableImageError(f"{reason} ({len(data)} bytes)") from error


def _decode(data: bytes | bytearray, scaled_to: int | None, max_pixels: int) -> Decoded:
    needed_side = scaled_to or NEEDED_SIDE
    # The fast path, for nearly all photos: torchvision, at full size.
    height, width, channels = _jpeg_size(data) or (0, 0, 0)
    is_usual = channels in (1, 3) and height * width <= max_pixels
    if decode_jpeg is not None and is_usual and min(height, width) < 2 * needed_side:
        return Decoded(decode_jpeg(_encoded(data), _RGB, _UPRIGHT))
    if data.startswith(_NPY):
        pixels = as_pixels(np.load(io.BytesIO(data), allow_pickle=False))
        check_size(pixels.shape[2], pixels.shape[1], max_pixels)
        return Decoded(pixels)
    if data.startswith(_TIFF) and not fits_pil(data):
        return Decoded(*decode_tiff(data, max_pixels))
    # All others: PIL reads the header, and decodes the pixels only on request.
    with Image.open(io.BytesIO(data), formats=FORMATS) as image:
        if min(image.size) >= 2 * needed_side:
            # For formats other than JPEG, this does nothing.
            image.draft(image.mode, (needed_side, needed_side))
        check_size(image.width, image.height, max_pixels)  # before the pixels are decoded
        if image.format == "PNG" and image.mode[:3] == "RGB" and data[_PNG_BITS] == 16:
            # PIL keeps 8 bits.
            return Decoded(torch.ops.image.decode_png(_encoded(data), _RGB, _UPRIGHT))
        image.load()  # the EXIF tag may follow the pixels
        upright: Image.Image = image
        with suppress(Exception):  # a damaged tag raises one of many types
            if image.getexif().get(_ORIENTATION, 1) != 1:  # otherwise it would make a copy
                upright = ImageOps.exif_transpose(image)
        return Decoded(as_pixels(upright), nodata_of(image))


def _encoded(data: bytes | bytearray) -> torch.Tensor:
    """Return an encoded image as a tensor, for torchvision's operators."""
    writable = data if isinstance(data, bytearray) else bytearray(data)  # avoids a warning
    return torch.frombuffer(writable, dtype=torch.uint8)


def _jpeg_size(data: bytes | bytearray) -> tuple[int, int, int] | None:
    """Return a JPEG's height, width and channels, 40 times as fast as PIL.

    None if it is not a JPEG, or has a block (XMP) that may hide the EXIF tag from torchvision.
    """
    at = 2
    while data.startswith(b"\xff", at) and at + 10 <= len(data):
        if data[at + 1] in _SIZES:
            height, width, channels = struct.unpack_from(">HHB", data, at + 5)
            return height, width, channels
        if data[at + 1] == _APP1 and not data.startswith(b"Exif", at + 4):
            return None
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return None


def advice_on(extensions: Iterable[str]) -> str:
    """Return how to read files with these extensions; empty if there is no advice."""
    advice = ""
    if {".heic", ".heif"} & set(extensions):
        advice = "; to read HEIC, pip install pillow-heif"
    for extension in extensions:
        if extension in CONVERTERS:
            advice += f"; to convert {extension} to .npy or .tif, use {CONVERTERS[extension]}"
    return advice
