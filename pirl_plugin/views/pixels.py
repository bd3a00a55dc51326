"""Pixels of any kind of image, random generators and crops for views."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.nn import functional as F

from pirl_plugin.system.failures import Refused, check, type_and_shape

_WORD = 2**64
_EPOCH_BITS = 24
_TRIES = 10
_RATIO = (3 / 4, 4 / 3)  # width / height of a random crop


def image_generator(seed: int, epoch: int, index: int) -> np.random.Generator:
    """Make the generator of all random numbers for one image in one epoch.

    Philox is a counter-based generator: only its 128-bit key determines the stream. So the views of
    an image do not depend on the number of workers, on their order, or on a restart.

    Args:
        seed: the run's seed, any integer (taken modulo 2⁶⁴).
        epoch: number of the pass over the data set, in [0, 2²⁴).
        index: row of the image in the data set, in [0, 2⁴⁰).

    Returns:
        A fresh generator, equal to ``Philox(key=seed·2⁶⁴ + index·2²⁴ + epoch)``.

    Example:
        >>> a, b = image_generator(0, 3, 7), image_generator(0, 3, 7)
        >>> bool(a.random() == b.random())
        True
    """
    # Python's integers: those of numpy and torch have 64 bits at most, and would overflow.
    low_word = int(index) << _EPOCH_BITS | int(epoch)
    key = (int(seed) % _WORD) * _WORD + low_word
    return np.random.Generator(np.random.Philox(key=key))


def as_generator(rng: np.random.Generator | None) -> np.random.Generator:
    """Return ``rng``, or if it is None, a new generator with a seed from torch's generator.

    A ``DataLoader`` seeds torch's generator in each worker.

    Raises:
        ValueError: ``rng`` has another type.
    """
    if rng is None:
        return np.random.Generator(np.random.Philox(key=int(torch.randint(2**62, ()))))
    is_generator = isinstance(rng, np.random.Generator)
    check("rng", rng, is_generator, "a generator, such as numpy.random.default_rng(0), or None")
    return rng


def as_pixels(image: Any) -> torch.Tensor:
    """Return any image as a uint8 tensor (3, H, W), RGB.

    Args:
        image: a PIL image (alpha is dropped, 16-bit greys are scaled); a uint8 array (H, W),
            (H, W, 1), (H, W, 3) or (H, W, 4); a uint8 tensor with 1, 3 or 4 channels first.

    Raises:
        ValueError: it has another type or shape, values of 32 bits, or no pixels.
    """
    if isinstance(image, np.ndarray) and image.dtype == np.uint8:
        if image.ndim == 3 and image.shape[2] == 1:
            image = image[:, :, 0]
        if image.ndim == 2 or (image.ndim == 3 and image.shape[2] in (3, 4)):
            image = Image.fromarray(image)
    if isinstance(image, Image.Image):
        if image.mode[0] in "IF":  # PIL's conversion would clip the values
            image = _deep_grey_to_rgb(image)
        else:
            rgb = image if image.mode == "RGB" else image.convert("RGB")
            image = torch.from_numpy(np.array(rgb)).permute(2, 0, 1)
    is_bytes = isinstance(image, torch.Tensor) and image.dtype == torch.uint8
    if not is_bytes or image.ndim != 3 or len(image) not in (1, 3, 4):
        raise Refused(
            f"the image is {type_and_shape(image)}: expected a PIL image, a uint8 tensor "
            f"(3, H, W) or an array (H, W, 3) of uint8; apply the views before ToTensor and "
            f"Normalize"
        )
    if image.numel() == 0:
        height, width = image.shape[1:]
        raise Refused(f"the image has {height} × {width} pixels: expected at least 1 × 1")
    pixels: torch.Tensor = image[:3].expand(3, -1, -1)
    return pixels


def as_image(pixels: torch.Tensor) -> Image.Image:
    """Return a uint8 tensor (3, H, W), RGB, as a PIL image."""
    return Image.fromarray(pixels.permute(1, 2, 0).contiguous().numpy())


def _deep_grey_to_rgb(image: Image.Image) -> torch.Tensor:
    """Scale a 16-bit grey image to 8 bits."""
    # PIL opens 16-bit PGM, and older PILs 16-bit PNG, with 32-bit values.
    if not image.mode.startswith("I;16") and image.format not in ("PNG", "PPM"):
        raise Refused(
            f"the image has 32-bit values (mode {image.mode}), which do not define white: "
            f"expected 8 or 16 bits; scale it"
        )
    grey = np.rint(np.asarray(image, np.float32) / 257).astype(np.uint8)
    return torch.from_numpy(grey).expand(3, -1, -1)


def random_resized_crop_box(
    height: int, width: int, scale: tuple[float, float], rng: np.random.Generator
) -> tuple[int, int, int, int]:
    """Draw the box of a random resized crop, with torchvision's distribution.

    There are up to ten tries: area uniform in ``scale`` (a share of the image), aspect ratio (width
    over height) log-uniform in [3/4, 4/3], position uniform. If none fits, the box is the largest
    central crop with an aspect ratio in this range. The function always takes 40 numbers from
    ``rng``, so later draws do not depend on the image's size.

    Source: Szegedy et al. 2015 (arXiv 1409.4842), as in torchvision's ``RandomResizedCrop``.

    Args:
        height: height of the image, pixels, at least 1.
        width: width of the image, pixels, at least 1.
        scale: smallest and largest area, shares of the image's area.
        rng: generator to draw from.

    Returns:
        Top, left, height and width of a box inside the image, pixels; it is at least 1 × 1.
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
    # None fits: the largest central crop.
    crop_h = height
    crop_w = width
    if width < _RATIO[0] * height:
        crop_h = max(1, round(width / _RATIO[0]))
    elif width > _RATIO[1] * height:
        crop_w = max(1, round(height * _RATIO[1]))
    return (height - crop_h) // 2, (width - crop_w) // 2, crop_h, crop_w


def random_resized_crop(
    pixels: torch.Tensor, scale: tuple[float, float], size: int, rng: np.random.Generator
) -> NDArray[np.uint8]:
    """Crop a random box and resize it to a square, bilinear with antialiasing.

    :func:`random_resized_crop_box` draws the box. Torch's kernel for channels-last bytes differs
    from PIL by about 0.02 grey levels on average. Copying the crop first is faster than resizing a
    strided view.

    Args:
        pixels: uint8 (3, H, W), best channels-last.
        scale: smallest and largest area of the box, shares of the image's area.
        size: side of the result, pixels.
        rng: generator to draw from.

    Returns:
        uint8 (size, size, 3), C-contiguous.
    """
    image_height, image_width = pixels.shape[1:]
    box = random_resized_crop_box(image_height, image_width, scale, rng)
    top, left, height, width = box
    # With three dimensions torch would not detect channels-last.
    crop = pixels[None, :, top : top + height, left : left + width]
    crop = crop.contiguous(memory_format=torch.channels_last)
    resized = F.interpolate(crop, size=(size, size), mode="bilinear", antialias=True)
    return np.ascontiguousarray(resized[0].permute(1, 2, 0).numpy())
