"""The oracle of the fused kernel: the same views through PIL and torchvision, one at a time."""

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageFilter, ImageOps
from torchvision.transforms import functional as TF

from pirl_plugin.views.kernels import (
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


def crop_resize_pil(pixels, box, size):
    image = Image.fromarray(np.ascontiguousarray(pixels.permute(1, 2, 0).numpy()))
    return np.array(TF.resized_crop(image, *box, [size, size]))


def render_pil(canvas, corners, rows, size):
    image = Image.fromarray(canvas)
    views = []
    for (top, left), row in zip(corners.tolist(), rows, strict=True):
        view = _apply(image.crop((left, top, left + size, top + size)), row.tolist())
        views.append(np.asarray(view).transpose(2, 0, 1))
    return torch.from_numpy(np.stack(views))


def _apply(image, values):
    for operation in values[ORDER : ORDER + 4]:
        if operation == 0 and values[BRIGHTNESS] != 1:
            image = TF.adjust_brightness(image, values[BRIGHTNESS])
        if operation == 1 and values[CONTRAST] != 1:
            image = TF.adjust_contrast(image, values[CONTRAST])
        if operation == 2 and values[SATURATION] != 1:
            image = TF.adjust_saturation(image, values[SATURATION])
        if operation == 3 and values[HUE] != 0:
            image = TF.adjust_hue(image, values[HUE])
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
