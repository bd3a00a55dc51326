"""Decode the bytes of an image file to 8-bit RGB; all failures raise one type of error."""

from __future__ import annotations

import io
import math
import os
import struct
from contextlib import suppress

import torch
from PIL import Image, ImageOps

from pirl_plugin.views.pixels import as_pixels

with suppress(ImportError):  # if it is installed, PIL reads HEIC
    import pillow_heif

    pillow_heif.register_heif_opener()
try:  # the operator itself: torchvision's deprecated function for it warns at each call
    import torchvision.io.image  # noqa: F401 (registers it)

    decode_jpeg = torch.ops.image.decode_jpeg
except (ImportError, AttributeError):  # PIL gives the same pixels
    decode_jpeg = None  # type: ignore[assignment]

SCALED_ABOVE = 3000
"""JPEGs with a shorter side of at least this many pixels are decoded at 1/4 or 1/8 size.

Views of a JPEG of 4,032 × 3,024 pixels are then 1.6 to 2.7 times as fast."""

_SIZES, _APP1 = (0xC0, 0xC1, 0xC2), 0xE1  # markers of a JPEG's blocks
_RGB, _UPRIGHT = 3, True  # torchvision's ImageReadMode.RGB, and to apply the EXIF orientation


class UnreadableImageError(ValueError):
    """An image cannot be decoded; the message says why."""


def read_file(path: str) -> bytearray:
    """Read a file whole. Raises ``OSError`` if that fails."""
    with open(path, "rb") as file:
        content = bytearray(os.fstat(file.fileno()).st_size)
        del content[file.readinto(content) :]
    return content


def decode_image(data: bytes | bytearray, scaled_to: int | None = None) -> torch.Tensor:
    """Decode an image of any usual format to RGB, upright.

    torchvision decodes JPEGs: the pixels equal PIL's bit by bit, and it is faster. PIL decodes all
    other images (CMYK JPEGs, PNG, GIF, WebP, …): the first frame of an animation, without
    transparency, 16-bit greys scaled to 8 bits.

    Args:
        data: the file's content; a ``bytearray`` saves a copy.
        scaled_to: decode a JPEG at the smallest of 1, 1/2, 1/4 and 1/8 size that leaves at least
            this many pixels to its shorter side (libjpeg scales its DCT blocks). None: a quarter
            of ``SCALED_ABOVE`` if the side has at least ``SCALED_ABOVE`` pixels, else full size.

    Returns:
        uint8 (3, H, W), RGB.

    Raises:
        UnreadableImageError: the data cannot be decoded: no bytes, a damaged file, not an image, or
            more pixels than PIL's limit. No other exception is raised.

    Example:
        >>> file = io.BytesIO()
        >>> Image.new("RGB", (4, 3), "red").save(file, "PNG")
        >>> decode_image(file.getvalue())[:, 0, 0].tolist()
        [255, 0, 0]
    """
    try:
        return _decode(data, scaled_to)
    except Image.UnidentifiedImageError:
        raise UnreadableImageError(f"it is not an image ({len(data)} bytes)") from None
    except Exception as error:  # decoders raise about ten types for damaged files
        said = " ".join(str(error).split())[:200] or type(error).__name__
        raise UnreadableImageError(f"{said} ({len(data)} bytes)") from error


def _decode(data: bytes | bytearray, scaled_to: int | None) -> torch.Tensor:
    scaled_above = 2 * scaled_to if scaled_to else SCALED_ABOVE
    height, width, channels = _jpeg_size(data) or (0, 0, 0)
    usual = channels in (1, 3) and height * width <= (Image.MAX_IMAGE_PIXELS or math.inf)
    if decode_jpeg is not None and usual and min(height, width) < scaled_above:
        writable = data if isinstance(data, bytearray) else bytearray(data)  # no warning
        encoded = torch.frombuffer(writable, dtype=torch.uint8)
        pixels: torch.Tensor = decode_jpeg(encoded, _RGB, _UPRIGHT)
        return pixels
    with Image.open(io.BytesIO(data)) as opened:  # reads the header only
        if min(opened.size) >= scaled_above:
            side = scaled_to or SCALED_ABOVE // 4
            opened.draft(opened.mode, (side, side))  # for formats other than JPEG, nothing
        opened.load()  # the EXIF tag may follow the pixels
        try:
            return as_pixels(ImageOps.exif_transpose(opened))
        except Exception:  # a damaged tag raises one of many types
            return as_pixels(opened)


def _jpeg_size(data: bytes | bytearray) -> tuple[int, int, int] | None:
    """Return height, width and channels of a JPEG; PIL takes 40 times as long for them.

    None if it is no JPEG, or has a block (XMP) that hides the EXIF tag from torchvision.
    """
    at = 2
    while data.startswith(b"\xff", at) and at + 10 <= len(data):
        if data[at + 1] in _SIZES:
            return struct.unpack_from(">HHB", data, at + 5)
        if data[at + 1] == _APP1 and not data.startswith(b"Exif", at + 4):
            return None
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return None
