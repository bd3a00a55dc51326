"""Decode the bytes of an image file to 8-bit RGB; all failures raise one type of error."""

from __future__ import annotations

import io
import os
from contextlib import suppress

import torch
from PIL import Image, ImageOps
from PIL.JpegImagePlugin import JpegImageFile

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

_ORIENTATION = 0x0112  # EXIF tag
_RGB = 3  # torchvision's ImageReadMode.RGB


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
    other images (CMYK JPEGs, JPEGs with an EXIF rotation, PNG, GIF, WebP, …): the first frame of an
    animation, without transparency, 16-bit greys scaled to 8 bits.

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
    with Image.open(io.BytesIO(data)) as opened:  # reads the header only
        if isinstance(opened, JpegImageFile):
            shorter = min(opened.size)
            if scaled_to is None:
                scaled_to = SCALED_ABOVE // 4 if shorter >= SCALED_ABOVE else shorter
            if shorter >= 2 * scaled_to:
                opened.draft(opened.mode, (scaled_to, scaled_to))
            elif decode_jpeg is not None and opened.mode in ("RGB", "L") and not _turned(opened):
                writable = data if isinstance(data, bytearray) else bytearray(data)  # no warning
                pixels: torch.Tensor = decode_jpeg(
                    torch.frombuffer(writable, dtype=torch.uint8), _RGB, False
                )
                return pixels
        opened.load()  # the EXIF tag may follow the pixels
        try:
            return as_pixels(ImageOps.exif_transpose(opened))
        except Exception:  # a damaged tag raises one of many types
            return as_pixels(opened)


def _turned(image: Image.Image) -> bool:
    """Return whether a readable EXIF tag says that the image is not upright."""
    try:
        return "exif" in image.info and image.getexif().get(_ORIENTATION, 1) != 1
    except Exception:
        return False
