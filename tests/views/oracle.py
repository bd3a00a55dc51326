"""Slow reference for the fused kernel: the same views with PIL and torchvision."""

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageFilter, ImageOps
from torchvision.transforms import functional as TF


def render_pil(canvas, corners, rows, size):
    image = Image.fromarray(canvas)
    views = []
    for (top, left), row in zip(corners.tolist(), rows, strict=True):
        view = _apply(image.crop((left, top, left + size, top + size)), row)
        views.append(np.asarray(view).transpose(2, 0, 1))
    return torch.from_numpy(np.stack(views))


def _apply(image, row):
    values = {name: row[name].tolist() for name in row.dtype.names}  # Python floats
    for operation in values["order"]:
        if operation == 0 and values["brightness"] != 1:
            image = TF.adjust_brightness(image, values["brightness"])
        if operation == 1 and values["contrast"] != 1:
            image = TF.adjust_contrast(image, values["contrast"])
        if operation == 2 and values["saturation"] != 1:
            image = TF.adjust_saturation(image, values["saturation"])
        if operation == 3 and values["hue"] != 0:
            image = TF.adjust_hue(image, values["hue"])
    if values["extras"]:
        image = ImageOps.posterize(image, int(values["posterize"]))
        image = ImageEnhance.Sharpness(image).enhance(values["sharpness"])
        image = ImageOps.solarize(image, int(values["solarize"]))
        image = ImageOps.autocontrast(image)
    if values["equalize"]:
        image = ImageOps.equalize(image)
    if values["grayscale"]:
        image = TF.rgb_to_grayscale(image, num_output_channels=3)
    if values["blur"]:
        image = image.filter(ImageFilter.GaussianBlur(values["blur"]))
    return TF.hflip(image) if values["flip"] else image
