"""Encoded bytes → an 8-bit RGB image, or one kind of error that says why not."""

import io
import warnings

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps

try:  # deprecated since torchvision 0.29; PIL gives the same pixels where it is gone
    from torchvision.io import ImageReadMode, decode_jpeg
except ImportError:
    decode_jpeg = None

MAX_PIXELS = 178_956_970
"""The largest image decoded: PIL's own limit for a decompression bomb (a 0.5 GB image)."""

_JPEG = b"\xff\xd8\xff"
# Frame headers: all of 0xC0 … 0xCF but DHT, JPG and DAC.
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_FULL_SCALES = (1, 255, 65_535)


class UnreadableImageError(ValueError):
    """These bytes are not an image that can be used; the message says why."""


def decode_image(data: bytes) -> torch.Tensor:
    """Decode an image of any usual format to RGB, upright.

    Ordinary JPEGs take torchvision's decoder, bit-identical to PIL's and faster; everything else
    (CMYK JPEG, PNG, GIF, WebP, BMP, TIFF, …) takes PIL. EXIF orientation is applied, the first
    frame of an animation is taken, alpha is dropped, and 16-bit greys are scaled to 8 bits.

    Args:
        data: the file's content.

    Returns:
        uint8 (3, H, W), RGB, channels-last in memory unless it was turned by its EXIF tag.

    Raises:
        UnreadableImageError: for anything that cannot be decoded: no bytes, a truncated or
            damaged file, not an image, more than ``MAX_PIXELS`` pixels. Nothing else is raised.
    """
    if not data:
        raise UnreadableImageError("the file is empty (0 bytes)")
    try:
        if data.startswith(_JPEG):
            frame = _jpeg_frame(data)
            if frame is not None:
                _refuse_bomb(frame[0], frame[1])
                if frame[2] in (1, 3) and decode_jpeg is not None:
                    return _decode_jpeg(data)
        return _decode_pil(data)
    except UnreadableImageError:
        raise
    except Exception as error:  # the decoders raise some ten types for damaged files
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise UnreadableImageError(f"{reason} ({len(data)} bytes)") from error


def _decode_jpeg(data: bytes) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of read-only bytes, which are only read; of deprecation
        encoded = torch.frombuffer(data, dtype=torch.uint8)
        return decode_jpeg(encoded, mode=ImageReadMode.RGB, apply_exif_orientation=True)


def _jpeg_frame(data: bytes) -> tuple[int, int, int] | None:
    """Height, width and number of components of a JPEG, or None if its header is damaged."""
    at = 2
    while at + 9 < len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:  # fill byte
            at += 1
        elif marker in _FRAMES:
            height = int.from_bytes(data[at + 5 : at + 7], "big")
            width = int.from_bytes(data[at + 7 : at + 9], "big")
            return height, width, data[at + 9]
        else:
            at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return None


def _refuse_bomb(height: int, width: int) -> None:
    if height * width > MAX_PIXELS:
        raise UnreadableImageError(
            f"the image is {width} × {height} pixels, more than the {MAX_PIXELS} that are "
            "decoded; make it smaller"
        )


def _decode_pil(data: bytes) -> torch.Tensor:
    with Image.open(io.BytesIO(data)) as opened:
        _refuse_bomb(opened.height, opened.width)
        image = ImageOps.exif_transpose(opened)
        pixels = _grey_to_8_bits(image) if image.mode[0] in "IF" else np.array(image.convert("RGB"))
    return torch.from_numpy(pixels).permute(2, 0, 1)


def _grey_to_8_bits(image: Image.Image) -> NDArray[np.uint8]:
    """Scale a deep grey image (modes ``I;16*``, ``I``, ``F``) to uint8 (H, W, 3).

    ``I;16`` is full scale at 65,535. The other modes do not say: full scale is the smallest of 1
    (``F`` only), 255 and 65,535 that holds the brightest pixel, or else that pixel.
    """
    grey = np.nan_to_num(np.asarray(image, dtype=np.float64), posinf=0.0, neginf=0.0)
    brightest = float(grey.max())
    if image.mode.startswith("I;16"):
        full = 65_535.0
    else:
        scales = _FULL_SCALES if image.mode == "F" else _FULL_SCALES[1:]
        full = next((float(scale) for scale in scales if brightest <= scale), brightest)
    scaled = np.clip(np.rint(grey * (255.0 / full)), 0, 255).astype(np.uint8)
    return np.repeat(scaled[..., None], 3, axis=2)
