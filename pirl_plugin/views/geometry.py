"""Where to crop: random resized crops and the jigsaw's patches."""

import functools
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_TRIES = 10


class Box(NamedTuple):
    """A rectangle of an image, in pixels: rows [top, top + height), columns likewise."""

    top: int
    left: int
    height: int
    width: int


def random_resized_crop_box(
    height: int,
    width: int,
    scale: tuple[float, float],
    ratio: tuple[float, float],
    rng: np.random.Generator,
) -> Box:
    """Draw the box of a random resized crop, with the distribution of torchvision's.

    Up to ten tries: area uniform in ``scale`` (a share of the image), aspect ratio log-uniform in
    ``ratio`` (width over height), position uniform. If none fits, the largest central crop whose
    aspect ratio lies in ``ratio``. It always takes 40 numbers from ``rng``, so what is drawn
    next does not depend on the image's size.

    Source: Szegedy et al. 2015 (arXiv 1409.4842), as in torchvision's ``RandomResizedCrop``.

    Args:
        height: of the image, pixels, at least 1.
        width: of the image, pixels, at least 1.
        scale: smallest and largest area, shares of the image's area.
        ratio: smallest and largest width / height.
        rng: generator to draw from.

    Returns:
        A box inside the image, at least 1 × 1.
    """
    log_low, log_high = math.log(ratio[0]), math.log(ratio[1])
    draws = rng.random((_TRIES, 4)).tolist()
    for area_draw, ratio_draw, top_draw, left_draw in draws:
        area = height * width * (scale[0] + area_draw * (scale[1] - scale[0]))
        aspect = math.exp(log_low + ratio_draw * (log_high - log_low))
        crop_w = round(math.sqrt(area * aspect))
        crop_h = round(math.sqrt(area / aspect))
        if 0 < crop_w <= width and 0 < crop_h <= height:
            top = int(top_draw * (height - crop_h + 1))
            left = int(left_draw * (width - crop_w + 1))
            return Box(top, left, crop_h, crop_w)
    return _central_box(height, width, ratio)


def _central_box(height: int, width: int, ratio: tuple[float, float]) -> Box:
    """The largest central box with an aspect ratio inside ``ratio``."""
    crop_h, crop_w = height, width
    if width < ratio[0] * height:
        crop_h = max(1, round(width / ratio[0]))
    elif width > ratio[1] * height:
        crop_w = max(1, round(height * ratio[1]))
    return Box((height - crop_h) // 2, (width - crop_w) // 2, crop_h, crop_w)


def patch_offsets(
    crop_size: int, grid: int, patch_size: int, rng: np.random.Generator
) -> NDArray[np.int32]:
    """Draw one patch in each cell of a grid (App. A.1: 64 px in each 85-px cell of a 255 crop).

    Each patch's position is uniform over all places inside its cell: 0 … 21 in both directions
    for the paper's sizes, both ends included.

    Args:
        crop_size: side of the square crop, pixels.
        grid: cells a side.
        patch_size: side of a patch, pixels, at most ``crop_size // grid``.
        rng: generator to draw from.

    Returns:
        int32 (grid², 2): top and left of each patch in the crop, cells row by row.
    """
    cell = crop_size // grid
    inside = rng.integers(0, cell - patch_size + 1, size=(grid * grid, 2), dtype=np.int32)
    inside += _cell_corners(grid, cell)
    return inside


@functools.cache
def _cell_corners(grid: int, cell: int) -> NDArray[np.int32]:
    """Top and left of each cell, int32 (grid², 2), row by row."""
    cells = np.arange(grid * grid, dtype=np.int32)
    return np.stack([cells // grid * cell, cells % grid * cell], axis=1)
