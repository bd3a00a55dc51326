"""TIFFs that PIL does not decode completely: other bands and types, stacks, thumbnails first."""

from __future__ import annotations

import io
import logging
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from pirl_plugin.system.failures import MissingPackage, Refused
from pirl_plugin.views.layout import PAGES_FIRST
from pirl_plugin.views.pixels import as_pixels

# TIFF tags, and some of their values.
_BITS_PER_SAMPLE = 258
_PHOTOMETRIC_INTERPRETATION = 262
_WHITE_IS_ZERO = 0
_ORIENTATION = 274
_PLANAR_CONFIGURATION = 284
_SEPARATE_PLANES = 2
_EXTRA_SAMPLES = 338
_UNSPECIFIED = 0  # an extra sample that is not transparency
_SAMPLE_FORMAT = 339
_SIGNED = 2
_NODATA = 42113  # GDAL_NODATA: the value of missing pixels, as text

# tifffile logs what makes an image unreadable, too.
logging.getLogger("tifffile").setLevel(logging.CRITICAL)

_FLIPS = {2: (2,), 3: (1, 2), 4: (1,), 6: (2,), 7: (1, 2), 8: (1,)}
"""Orientation → axes of (C, H, W) to reverse, after H and W are swapped for 5 to 8."""


def fits_pil(data: bytes | bytearray) -> bool:
    """Return whether PIL decodes all channels of a TIFF, with the right values."""
    try:
        image = Image.open(io.BytesIO(data), formats=["TIFF"])
    except Image.UnidentifiedImageError:
        return False
    with image:
        tags: Any = image.tag_v2  # type: ignore[attr-defined]
        is_gray = image.mode[0] in "LIF"
        is_deep = max(tags.get(_BITS_PER_SAMPLE, (8,))) > 8
        is_planar = tags.get(_PLANAR_CONFIGURATION) == _SEPARATE_PLANES
        is_inverted = tags.get(_PHOTOMETRIC_INTERPRETATION) == _WHITE_IS_ZERO
        # For PIL, 8 bits are unsigned, and 32 are signed.
        if image.mode == "I" or _SIGNED in tags.get(_SAMPLE_FORMAT, ()):
            return False
        # PIL keeps only 8 bits of colors, and misreads a TIFF with two of these properties.
        if (is_deep and not is_gray) or is_deep + is_planar + is_inverted > 1:
            return False
        # PIL reads a fourth band that is not declared as transparency.
        extra_samples = tags.get(_EXTRA_SAMPLES, ())
        if _UNSPECIFIED in extra_samples or ("A" in image.mode and not extra_samples):
            return False
        num_frames = getattr(image, "n_frames", 1)
        if is_gray:
            return num_frames == 1
        area = image.width * image.height
        for frame in range(1, num_frames):
            image.seek(frame)
            if image.width * image.height > area:
                return False
    return True


def _import_tifffile() -> Any:
    try:
        import tifffile
    except ImportError:
        raise MissingPackage(
            "a TIFF with several bands or pages, or a type that PIL lacks, needs tifffile: "
            "pip install 'pirl-plugin[tiff]'"
        ) from None
    return tifffile


def decode_tiff(data: bytes | bytearray, max_pixels: int) -> tuple[torch.Tensor, float | None]:
    """Decode the largest image in a TIFF, upright; pages of equal size become channels.

    Args:
        data: the file's content.
        max_pixels: maximum number of pixels.

    Returns:
        The pixels ``(C, H, W)``, and the value of missing pixels; None if the file names none.

    Raises:
        Refused: the image is too large, or incomplete, or has more axes; or tifffile is not
            installed.
    """
    tifffile = _import_tifffile()
    with tifffile.TiffFile(io.BytesIO(data)) as file:
        first = max(
            file.series, key=lambda each: each.keyframe.imagewidth * each.keyframe.imagelength
        )
        series = [
            each for each in file.series if (each.shape, each.dtype) == (first.shape, first.dtype)
        ]
        page = first.keyframe
        check_size(page.imagewidth, page.imagelength, max_pixels)
        if first.kind == "ome" and None in list(first.pages):  # tifffile fills it with zeros
            raise Refused("some of its planes are in other files. Save all planes in one file.")
        array = first.asarray()
        axes = first.axes
        if len(series) > 1:
            array = np.stack([each.asarray() for each in series])
            axes = f"I{axes}"
        if page.photometric == _WHITE_IS_ZERO and array.dtype.kind == "u":
            array = ~array
        orientation = page.tags.valueof(_ORIENTATION, 1)
        nodata = _number(page.tags.valueof(_NODATA))
    pixels = as_pixels(array, axes, PAGES_FIRST)
    if orientation > 4:
        pixels = pixels.transpose(1, 2)
    turned = np.flip(pixels.numpy(), _FLIPS.get(orientation, ()))  # torch before 2.12: no uint16
    return torch.from_numpy(np.ascontiguousarray(turned)), nodata


def encode_tiff(array: NDArray[np.generic], nodata: float | None) -> bytes:
    """Return an array ``(C, H, W)`` as a TIFF that names its axes and the missing pixels' value."""
    tifffile = _import_tifffile()
    tags = [] if nodata is None else [(_NODATA, "s", 0, f"{nodata:.17g}", True)]
    file = io.BytesIO()
    tifffile.imwrite(
        file, array, photometric="minisblack", metadata={"axes": PAGES_FIRST}, extratags=tags
    )
    return file.getvalue()


def check_size(width: int, height: int, max_pixels: int) -> None:
    """Raise ``Refused`` if an image has too many pixels to decode."""
    if width * height > max_pixels:
        raise Refused(
            f"it has {width} × {height} pixels: expected at most {max_pixels / 1e6:.0f} "
            f"megapixels; cut it into tiles, or make smaller copies, such as with pirl-plugin "
            f"prepare"
        )


def _number(text: Any) -> float | None:
    """Return the number in a tag; None if there is none."""
    with suppress(TypeError, ValueError):
        return float(str(text).strip(" \0"))
    return None


def nodata_of(image: Image.Image) -> float | None:
    """Return the value of missing pixels that an open TIFF names; None for other files."""
    tags: Any = getattr(image, "tag_v2", {})
    return _number(tags.get(_NODATA))
