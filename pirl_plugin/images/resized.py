"""A smaller copy of one image file, for ``pirl-plugin prepare``."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from pirl_plugin.files import unfinished_beside
from pirl_plugin.images.decode import UnreadableImageError, decode_image
from pirl_plugin.images.formats import can_read_heif
from pirl_plugin.images.read import read_file

_JPEG_SUFFIXES = frozenset({".jpg", ".jpeg", ".jfif", ".jpe"})
CHANGED_SUFFIX = ".jpg"
"""What the copy's name has after the file's own, where the format changed."""


class Copy(NamedTuple):
    """Content and name of a prepared image.

    Attributes:
        content: encoded; the file's own where it is small enough.
        suffix: to be added to the file's name: ``CHANGED_SUFFIX``, or empty.
    """

    content: bytes | bytearray
    suffix: str = ""


def resized_copy(path: str, size: int, quality: int) -> Copy:
    """Read an image and shrink its shorter side to ``size`` pixels, as a JPEG.

    An image that is no larger is kept byte for byte. The result is decoded again to see that it is
    whole.

    Args:
        path: of the file.
        size: pixels.
        quality: of the JPEG, 1 … 95.

    Raises:
        UnreadableImageError: it cannot be decoded.
        OSError: it cannot be read.
    """
    data = read_file(path)
    pixels = decode_image(data, scaled_to=2 * size)
    height, width = pixels.shape[1:]
    if min(height, width) <= size:
        return Copy(data)
    scale = size / min(height, width)
    smaller = (max(size, round(width * scale)), max(size, round(height * scale)))
    image = Image.fromarray(pixels.permute(1, 2, 0).contiguous().numpy())
    file = io.BytesIO()
    image.resize(smaller, Image.Resampling.LANCZOS).save(file, "JPEG", quality=quality)
    content = file.getvalue()
    if tuple(decode_image(content, scaled_to=0).shape[1:]) != smaller[::-1]:
        raise UnreadableImageError("its copy did not decode to the size that was written")
    is_jpeg = Path(path).suffix.lower() in _JPEG_SUFFIXES
    return Copy(content, "" if is_jpeg else CHANGED_SUFFIX)


def is_prepared(path: Path, size: int) -> bool:
    """Whether a file is an image that ``resized_copy`` could have made: none larger than ``size``.

    It looks at the header only: copies are complete when they get their name.
    """
    can_read_heif()  # which lets PIL open such copies
    try:
        with Image.open(io.BytesIO(read_file(os.fspath(path)))) as image:
            return min(image.size) <= size
    except Exception:  # PIL raises some ten types
        return False


def write_new(path: Path, content: bytes | bytearray) -> None:
    """Write a file that appears complete or not at all, and never in the place of another.

    Raises:
        FileExistsError: there is a file of this name.
        OSError: it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = unfinished_beside(path)
    try:
        temporary.write_bytes(content)
        try:
            os.link(temporary, path)  # which fails where something is
        except FileExistsError:
            if temporary.stat().st_nlink != 2:  # a network file system asked twice, and it is ours
                raise
        except OSError:  # a file system without links
            if path.exists():
                raise FileExistsError(f"{path} exists") from None
            os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
