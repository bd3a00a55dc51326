"""Photometric augmentation of a view with PIL: the oracle of the fused kernel."""

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageEnhance, ImageFilter, ImageOps
from torchvision.transforms import functional as TF

from pirl_plugin.images.columns import (
    BLUR,
    BRIGHTNESS,
    CONTRAST,
    EQUALIZE,
    EXTRAS,
    FLIP,
    GREY,
    HUE,
    ORDER,
    POSTERIZE,
    SATURATION,
    SHARPNESS,
    SOLARIZE,
)


def apply_pil(image: Image.Image, row: NDArray[np.float32]) -> Image.Image:
    """Apply one parameter row with torchvision's PIL functions: the oracle of the fused kernel.

    Args:
        image: RGB.
        row: float32 (NUM_COLUMNS,), as drawn by ``Photometric.sample``.

    Returns:
        An RGB image of the same size.
    """
    values = [float(value) for value in row]
    for operation in values[ORDER : ORDER + 4]:
        image = _jitter(image, int(operation), values)
    if values[EXTRAS]:
        image = ImageOps.posterize(image, int(values[POSTERIZE]))
        image = ImageEnhance.Sharpness(image).enhance(values[SHARPNESS])
        image = ImageOps.solarize(image, int(values[SOLARIZE]))
        image = ImageOps.autocontrast(image)
    if values[EQUALIZE]:
        image = ImageOps.equalize(image)
    if values[GREY]:
        image = TF.rgb_to_grayscale(image, num_output_channels=3)
    if values[BLUR]:
        image = image.filter(ImageFilter.GaussianBlur(values[BLUR]))
    return TF.hflip(image) if values[FLIP] else image


def _jitter(image: Image.Image, operation: int, values: list[float]) -> Image.Image:
    """One of the four operations of the colour jitter, unless its parameter leaves all as is."""
    if operation == 0 and values[BRIGHTNESS] != 1:
        return TF.adjust_brightness(image, values[BRIGHTNESS])
    if operation == 1 and values[CONTRAST] != 1:
        return TF.adjust_contrast(image, values[CONTRAST])
    if operation == 2 and values[SATURATION] != 1:
        return TF.adjust_saturation(image, values[SATURATION])
    if operation == 3 and values[HUE] != 0:
        return TF.adjust_hue(image, values[HUE])
    return image
