"""Decode the bytes of an image file to 8-bit RGB, with one type of error for all failures."""

from __future__ import annotations

import io
import os
from contextlib import suppress

import torch
from PIL import Image, ImageOps
from PIL.JpegImagePlugin import JpegImageFile

from pirl_plugin.views.pixels import as_pixels

with suppress(ImportError):  # reads HEIC where it is installed
    import pillow_heif

    pillow_heif.register_heif_opener()
try:  # the operator itself: torchvision's function for it is deprecated and warns at each call
    import torchvision.io.image  # noqa: F401 (registers it)

    decode_jpeg = torch.ops.image.decode_jpeg
except (ImportError, AttributeError):  # PIL gives the same pixels
    decode_jpeg = None  # type: ignore[assignment]

SCALED_ABOVE = 3000
"""JPEGs whose shorter side is at least this many pixels are decoded at 1/4 or 1/8 of it.

Views of one of 4,032 × 3,024 pixels then take 1.6 to 2.7 times less time."""

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

    JPEGs take torchvision's decoder, bit-identical to PIL's and faster. All others (JPEGs that are
    CMYK or turned by their EXIF tag, PNG, GIF, WebP, …) take PIL: the first frame of an animation,
    without transparency, 16-bit greys scaled to 8 bits.

    Args:
        data: the file's content; a ``bytearray`` saves a copy.
        scaled_to: decode a JPEG at the smallest of 1, 1/2, 1/4 and 1/8 that leaves its shorter
            side this many pixels (libjpeg scales its DCT blocks); None for a quarter of
            ``SCALED_ABOVE`` where the side is at least ``SCALED_ABOVE``.

    Returns:
        uint8 (3, H, W), RGB.

    Raises:
        UnreadableImageError: for anything that cannot be decoded: no bytes, a damaged file, not an
            image, or one of more than PIL's limit of pixels. Nothing else is raised.

    Example:
        >>> file = io.BytesIO()
        >>> Image.new("RGB", (4, 3), "red").save(file, "PNG")
        >>> decode_image(file.getvalue())[:, 0, 0].tolist()
        [255, 0, 0]
    """
    try:
        return _decode(data, scaled_to)
    except Image.UnidentifiedImageError:
        raise UnreadableImageError(f"it is no image ({len(data)} bytes)") from None
    except Exception as error:  # the decoders raise some ten types for damaged files
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
                writable = data if isinstance(data, bytearray) else bytearray(data)  # or it warns
                pixels: torch.Tensor = decode_jpeg(
                    torch.frombuffer(writable, dtype=torch.uint8), _RGB, False
                )
                return pixels
        opened.load()  # the tag may follow the pixels
        try:
            return as_pixels(ImageOps.exif_transpose(opened))
        except Exception:  # a damaged tag raises any of many types
            return as_pixels(opened)


def _turned(image: Image.Image) -> bool:
    """Whether an EXIF tag, if it can be read, says that the image is not upright."""
    try:
        return "exif" in image.info and image.getexif().get(_ORIENTATION, 1) != 1
    except Exception:
        return False
