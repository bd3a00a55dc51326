"""Pixels from images of any kind, random generators and crops for views."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.nn import functional as F

from pirl_plugin.system.console import warn_once
from pirl_plugin.system.failures import Refused, type_and_shape
from pirl_plugin.views.layout import CHANNELS_LAST, MOST_USUAL, channels_first

_WORD = 2**64
_EPOCH_BITS = 24
_TRIES = 10
_RATIO = (3 / 4, 4 / 3)  # width / height of a random crop
_TYPES = {"uint8": torch.uint8, "uint16": torch.uint16, "float32": torch.float32}
_REAL_TYPES = ("bool", "int", "uint", "float", "bfloat", "longdouble")  # how dtype names begin
_EXACT_BYTES = 2  # largest values that float32 represents without rounding


def image_generator(seed: int, epoch: int, index: int) -> np.random.Generator:
    """Create the generator for one image in one epoch.

    Philox is counter-based: its 128-bit key alone determines the stream. So views do not depend on
    the number or order of workers, or on a restart.

    Args:
        seed: the run's seed, any integer (taken modulo 2⁶⁴).
        epoch: epoch, in [0, 2²⁴).
        index: the image's number in the data set, in [0, 2⁴⁰).

    Returns:
        A new generator, equal to ``Philox(key=seed·2⁶⁴ + index·2²⁴ + epoch)``.

    Example:
        >>> a, b = image_generator(0, 3, 7), image_generator(0, 3, 7)
        >>> bool(a.random() == b.random())
        True
    """
    # Python integers, because NumPy's and torch's would overflow.
    low_word = int(index) << _EPOCH_BITS | int(epoch)
    key = (int(seed) % _WORD) * _WORD + low_word
    return np.random.Generator(np.random.Philox(key=key))


def as_generator(rng: np.random.Generator | None) -> np.random.Generator:
    """Return ``rng``, or a new generator seeded from torch's, which loaders seed per worker."""
    if rng is None:
        return np.random.Generator(np.random.Philox(key=int(torch.randint(2**62, ()))))
    return rng


def as_pixels(image: Any, axes: str = "", usual: str = CHANNELS_LAST) -> torch.Tensor:
    """Return any image as a tensor (C, H, W) of uint8, uint16 or float32, with C >= 1.

    Other real types become float32. If that rounds values, a warning says so.

    Args:
        image: a PIL image, which becomes RGB in uint8 unless it has more bits; a tensor (C, H, W);
            or an array: (H, W), or with channels as in
            :func:`~pirl_plugin.views.layout.channels_first`.
        axes: one letter per axis of an array, as in tifffile; empty if they have no names.
        usual: the usual axes of an array without names.

    Raises:
        ValueError: it is not an image, has complex values or no pixels, or it is not clear which
            axis holds the channels.
    """
    if isinstance(image, Image.Image):
        image = _array_of(image)
        axes = "YXS"[: image.ndim]
    is_tensor = isinstance(image, torch.Tensor)
    if not (is_tensor or isinstance(image, np.ndarray)) or image.ndim < 2 or 0 in image.shape:
        raise Refused(
            f"the image is {type_and_shape(image)}: expected a PIL image, an array (H, W, C) or a "
            f"tensor (C, H, W)"
        )
    name = str(image.dtype).removeprefix("torch.") if is_tensor else image.dtype.name
    if not name.startswith(_REAL_TYPES):
        raise Refused(f"the image has {name} values. Convert them to real numbers.")
    if name not in _TYPES:
        if image.dtype.itemsize > _EXACT_BYTES:
            warn_once(f"Some images have {name} values, which are rounded to float32.")
        name = "float32"
    if is_tensor:
        return _with_channels_first(image).to(_TYPES[name])
    # A writable copy in the machine's byte order; channels stay last in memory.
    with np.errstate(over="ignore"):  # becomes infinite
        return torch.from_numpy(np.array(channels_first(image, axes, usual), name))


def _with_channels_first(image: torch.Tensor) -> torch.Tensor:
    """Return a tensor (C, H, W), unless it seems to be (H, W, C)."""
    if image.ndim == 2:
        return image[None]
    if image.ndim != 3 or image.shape[2] <= MOST_USUAL < min(image.shape[:2]):
        raise Refused(
            f"the image is a tensor of shape {tuple(image.shape)}: expected (C, H, W). For "
            f"(H, W, C), pass tensor.permute(2, 0, 1)."
        )
    return image


def as_rgb(image: Any) -> torch.Tensor:
    """Return an image of one, three or four channels as a uint8 tensor (3, H, W), RGB.

    Args:
        image: as in :func:`as_pixels`. Alpha is dropped, and 16 bits are scaled to 8.

    Raises:
        ValueError: the type or shape is wrong.
    """
    pixels = as_pixels(image)
    if pixels.dtype == torch.uint16:
        pixels = (pixels.float() / 257).round().to(torch.uint8)
    if pixels.dtype != torch.uint8 or len(pixels) not in (1, 3, 4):
        raise Refused(
            f"the image is {type_and_shape(pixels)}: expected RGB or gray with at most 16 bits. "
            f"Convert it to uint8."
        )
    return pixels[:3].expand(3, -1, -1)


def is_rgb(pixels: torch.Tensor) -> bool:
    """Return whether a tensor (C, H, W) is RGB in uint8."""
    return pixels.dtype == torch.uint8 and len(pixels) == 3


def as_image(pixels: torch.Tensor) -> Image.Image:
    """Return a uint8 tensor (3, H, W), RGB, as a PIL image."""
    return Image.fromarray(pixels.permute(1, 2, 0).contiguous().numpy())


def _array_of(image: Image.Image) -> NDArray[Any]:
    """Return a PIL image as an array (H, W, 3), RGB in uint8, or (H, W) if it has more bits."""
    # PIL opens 16-bit PGM, and older PILs 16-bit PNG, with 32-bit values.
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM")):
        return np.array(image).astype(np.uint16)
    if image.mode in ("I", "F"):  # PIL's conversion to RGB would clip the values
        return np.array(image)
    return np.array(image if image.mode == "RGB" else image.convert("RGB"))


def random_resized_crop_box(
    height: int, width: int, scale: tuple[float, float], rng: np.random.Generator
) -> tuple[int, int, int, int]:
    """Draw the box for a random resized crop, with torchvision's distribution.

    There are up to ten tries: area fraction uniform in ``scale``, aspect ratio (width over height)
    log-uniform in [3/4, 4/3], position uniform. If none fits, the box is the largest center crop
    within this range. It always takes 40 numbers from ``rng``, so later draws do not depend on the
    image size.

    Source: Szegedy et al. 2015 (arXiv 1409.4842), as in torchvision's ``RandomResizedCrop``.

    Args:
        height: image height, pixels, at least 1.
        width: image width, pixels, at least 1.
        scale: smallest and largest area, as fractions of the image.
        rng: random generator.

    Returns:
        Top, left, height and width in pixels, at least 1 × 1 and inside the image.
    """
    log_low = math.log(_RATIO[0])
    log_high = math.log(_RATIO[1])
    for area_draw, ratio_draw, top_draw, left_draw in rng.random((_TRIES, 4)).tolist():
        area = height * width * (scale[0] + area_draw * (scale[1] - scale[0]))
        aspect = math.exp(log_low + ratio_draw * (log_high - log_low))
        crop_w = round(math.sqrt(area * aspect))
        crop_h = round(math.sqrt(area / aspect))
        if 0 < crop_w <= width and 0 < crop_h <= height:
            top = int(top_draw * (height - crop_h + 1))
            left = int(left_draw * (width - crop_w + 1))
            return top, left, crop_h, crop_w
    # None fits: take the largest center crop.
    crop_h = min(height, max(1, round(width / _RATIO[0])))
    crop_w = min(width, max(1, round(height * _RATIO[1])))
    return (height - crop_h) // 2, (width - crop_w) // 2, crop_h, crop_w


def random_resized_crop(
    pixels: torch.Tensor, scale: tuple[float, float], size: int, rng: np.random.Generator
) -> NDArray[Any]:
    """Crop a random box and resize it to a square, bilinear with antialiasing.

    :func:`random_resized_crop_box` draws the box. Torch's kernel for channels-last bytes differs
    from PIL by about 0.02 gray levels on average. Copying the crop first is faster than resizing a
    strided view. Types other than uint8 are resized in float32; uint16 is rounded.

    Args:
        pixels: (C, H, W), uint8, uint16 or float32, preferably channels-last.
        scale: smallest and largest box area, as fractions of the image.
        size: side of the result, pixels.
        rng: random generator.

    Returns:
        (size, size, C), C-contiguous, same dtype as ``pixels``.
    """
    image_height, image_width = pixels.shape[1:]
    box = random_resized_crop_box(image_height, image_width, scale, rng)
    top, left, height, width = box
    # With three dimensions torch would not detect channels-last.
    crop = pixels[None, :, top : top + height, left : left + width]
    if pixels.dtype == torch.uint8:
        crop = crop.contiguous(memory_format=torch.channels_last)
    else:
        crop = crop.float()
    resized = F.interpolate(crop, size=(size, size), mode="bilinear", antialias=True)
    if pixels.dtype == torch.uint16:
        resized = resized.round().to(torch.uint16)
    return np.ascontiguousarray(resized[0].permute(1, 2, 0).numpy())
