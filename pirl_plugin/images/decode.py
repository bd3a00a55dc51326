"""A file of bytes → an 8-bit RGB image, or one kind of error that says why not."""

from __future__ import annotations

import functools
import importlib.util
import io
import os
import re
import stat
import warnings

import torch
from PIL import Image, ImageOps
from PIL.JpegImagePlugin import JpegImageFile

from pirl_plugin.views.pixels import as_pixels

try:  # the operator: torchvision's function of it warns at each call since 0.29, and will go
    import torchvision.io.image  # noqa: F401 (registers it)

    decode_jpeg = torch.ops.image.decode_jpeg
except (ImportError, AttributeError):  # PIL gives the same pixels
    decode_jpeg = None  # type: ignore[assignment]

MAX_FILE_BYTES = 2**29
"""The largest file that is read as an image: 0.5 GiB."""

MAX_PIXELS = 53_000_000
"""The most pixels that are decoded: at some 10 bytes a pixel, 0.5 GiB."""

SCALED_ABOVE = 3000
"""JPEGs whose shorter side is at least this many pixels are decoded at 1/4 or 1/8 of it.

Views of one of 4,032 × 3,024 pixels then take 1.6 to 2.7 times less time."""

_JPEG = b"\xff\xd8\xff"
_SCAN = b"\xff\xda"  # never within a scan, where FF is followed by 00 or a restart marker
_MAX_SCANS = 100  # encoders write about 10; each goes over the coefficients of the whole image
_RGB = 3  # torchvision's ImageReadMode.RGB
_RUNS_PROGRAMS = frozenset({"EPS"})  # PIL hands these to Ghostscript
_OBJECT = re.compile(r" <_io\.\w+ object at 0x[0-9a-f]+>")  # what PIL calls a file in memory
_HEIF_DECODER = "pillow_heif"


class UnreadableImageError(ValueError):
    """These bytes are not an image that can be used; the message says why."""


def read_file(path: str) -> bytearray:
    """Read a file whole, without ever waiting for one that is not a regular file.

    Raises:
        OSError: it cannot be opened, is no regular file, or is larger than ``MAX_FILE_BYTES``.
        ValueError: ``path`` holds a NUL byte.
    """
    # Without O_NONBLOCK, opening a pipe waits for someone to write to it.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(descriptor, "rb", buffering=0) as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError("it is not a regular file (a pipe, a device, a socket or a folder)")
        if status.st_size > MAX_FILE_BYTES:
            raise OSError(f"the file has {status.st_size / 2**20:,.0f} MiB, more than are read")
        content = bytearray(status.st_size)
        filled = 0
        with memoryview(content) as view:
            while filled < len(content) and (count := file.readinto(view[filled:])):
                filled += count
    del content[filled:]
    return content


def decode_image(data: bytes | bytearray, scaled_to: int | None = None) -> torch.Tensor:
    """Decode an image of any usual format to RGB, upright.

    JPEGs take torchvision's decoder, bit-identical to PIL's and faster; everything else (JPEGs in
    CMYK, PNG, GIF, WebP, AVIF, BMP, TIFF, …) takes PIL. EXIF orientation is applied, the first
    frame of an animation is taken, alpha is dropped, and 16-bit greys are scaled to 8 bits.

    Args:
        data: the file's content; a ``bytearray`` saves a copy.
        scaled_to: decode a JPEG at the smallest of 1, 1/2, 1/4 and 1/8 that leaves its shorter
            side this many pixels (libjpeg scales its DCT blocks); 0 for never; None for a quarter
            of ``SCALED_ABOVE``, where the side is at least ``SCALED_ABOVE``.

    Returns:
        uint8 (3, H, W), RGB, channels-last in memory unless it was turned by its EXIF tag.

    Raises:
        UnreadableImageError: for anything that cannot be decoded: no bytes, a truncated or
            damaged file, not an image, one of more than ``MAX_PIXELS``. Nothing else is raised.

    Example:
        >>> file = io.BytesIO()
        >>> Image.new("RGB", (4, 3), "red").save(file, "PNG")
        >>> decode_image(file.getvalue())[:, 0, 0].tolist()
        [255, 0, 0]
    """
    if not data:
        raise UnreadableImageError("the file is empty (0 bytes)")
    try:
        return _decode(data, scaled_to)
    except UnreadableImageError:
        raise
    except Exception as error:  # the decoders raise some ten types for damaged files
        said = " ".join(_OBJECT.sub("", str(error)).split())[:200]
        raise UnreadableImageError(f"{said or type(error).__name__} ({len(data)} bytes)") from error


def _decode(data: bytes | bytearray, scaled_to: int | None) -> torch.Tensor:
    if data.startswith(_JPEG):
        opened: Image.Image = JpegImageFile(io.BytesIO(data))  # reads the header only
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # bounded below
            opened = Image.open(io.BytesIO(data), formats=_formats())
    with opened:
        scale = 1
        if opened.format == "JPEG":
            shorter = min(opened.size)
            if scaled_to is None:
                scaled_to = SCALED_ABOVE // 4 if shorter >= SCALED_ABOVE else 0
            while scale < 8 and scaled_to and shorter // (2 * scale) >= scaled_to:
                scale *= 2
            if "progressive" in opened.info and data.count(_SCAN) > _MAX_SCANS:
                raise UnreadableImageError(f"it is a JPEG of more than {_MAX_SCANS} scans")
        if opened.width * opened.height // scale**2 > MAX_PIXELS:
            raise UnreadableImageError(
                f"the image is {opened.width} × {opened.height} pixels, more than the "
                f"{MAX_PIXELS:,} that are decoded; make it smaller"
            )
        # Torchvision looks for the orientation in the first APP1 alone, and reads no CMYK.
        segments = getattr(opened, "applist", [])
        exif_first = next((s for name, s in segments if name == "APP1"), b"Exif")[:4] == b"Exif"
        ordinary = opened.mode in ("RGB", "L") and exif_first
        if opened.format == "JPEG" and scale == 1 and ordinary and decode_jpeg is not None:
            writable = data if isinstance(data, bytearray) else bytearray(data)  # or torch warns
            image: torch.Tensor = decode_jpeg(
                torch.frombuffer(writable, dtype=torch.uint8), _RGB, True
            )
            if sorted(image.shape[1:]) != sorted(opened.size):
                raise UnreadableImageError(
                    f"its header says {opened.width} × {opened.height} pixels and the decoder "
                    f"{image.shape[2]} × {image.shape[1]}: it is damaged"
                )
            return image
        if scale > 1:
            opened.draft(opened.mode, (opened.width // scale, opened.height // scale))
        opened.load()  # the tag may follow the pixels
        try:
            return as_pixels(ImageOps.exif_transpose(opened))
        except (SyntaxError, ValueError, TypeError, KeyError, OverflowError):  # a damaged tag
            return as_pixels(opened)


@functools.cache
def _formats() -> tuple[str, ...]:
    """PIL's formats, without those that run other programs."""
    Image.init()
    can_read_heif()
    return tuple(name for name in Image.ID if name not in _RUNS_PROGRAMS)


@functools.cache
def can_read_heif() -> bool:
    """Whether HEIC is read, after registering PIL's opener for it; false without pillow_heif."""
    if importlib.util.find_spec(_HEIF_DECODER) is None:
        return False
    importlib.import_module(_HEIF_DECODER).register_heif_opener()
    return True
