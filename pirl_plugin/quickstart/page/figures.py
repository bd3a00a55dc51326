"""Pictures of the report page as text for HTML, and the map of the features."""

from __future__ import annotations

import base64
import io
import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image

if TYPE_CHECKING:
    from collections.abc import Sequence

Picture = NDArray[np.uint8]
"""One RGB image, uint8 (H, W, 3)."""

# Ten colours that differ clearly on white and on black, also for the colour-blind (Okabe and Ito's
# eight and two more); classes beyond the tenth have no colour.
PALETTE = (
    (0, 114, 178), (230, 159, 0), (0, 158, 115), (204, 121, 167), (213, 94, 0),
    (86, 180, 233), (240, 228, 66), (148, 103, 189), (140, 86, 75), (127, 127, 127),
)  # fmt: skip


def png_uri(picture: Picture) -> str:
    """Encode uint8 (H, W, 3) or (H, W, 4) as the ``data:`` address of a PNG.

    Raises:
        ValueError: for another shape or dtype.
    """
    picture = np.asarray(picture)
    if picture.ndim != 3 or picture.shape[2] not in (3, 4) or picture.dtype != np.uint8:
        raise ValueError(
            f"a picture has shape {picture.shape} and dtype {picture.dtype}, expected uint8 "
            "(H, W, 3): undo the normalisation, multiply by 255 and permute (C, H, W) first"
        )
    stream = io.BytesIO()
    Image.fromarray(picture).save(stream, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()


def patch_grid(patches: list[Picture]) -> Picture:
    """Lay nine (h, w, 3) patches out three by three with clear gaps: uint8 (H, W, 4).

    Raises:
        ValueError: there are not nine of one size.
    """
    shapes = {np.shape(patch) for patch in patches}
    if len(patches) != 9 or len(shapes) != 1:
        raise ValueError(
            f"a jigsaw has {len(patches)} patches of shapes {sorted(shapes)}, expected nine of one "
            "shape (h, w, 3): give the patches of one image"
        )
    high, wide, _ = shapes.pop()
    gap = max(1, wide // 12)
    grid = np.zeros((3 * high + 2 * gap, 3 * wide + 2 * gap, 4), np.uint8)
    for number, patch in enumerate(patches):
        top, left = (number // 3) * (high + gap), (number % 3) * (wide + gap)
        grid[top : top + high, left : left + wide, :3] = patch
        grid[top : top + high, left : left + wide, 3] = 255
    return grid


def feature_map(
    features: NDArray[np.floating], thumbnails: Sequence[Picture], classes: Sequence[int], seed: int
) -> Picture:
    """Thumbnails laid out so that images with like features are near each other.

    t-SNE brings the features to two dimensions. Each image then takes a cell of a grid, such that
    the squared distances to where t-SNE put them are least in all: no thumbnail hides another.

    Args:
        features: (N, D).
        thumbnails: N pictures of one size s.
        classes: N numbers, of the colour of the frame; without one from ``len(PALETTE)`` on.
        seed: of t-SNE.

    Returns:
        uint8 (H, W, 4), clear between the thumbnails.
    """
    from scipy.optimize import linear_sum_assignment
    from sklearn.manifold import TSNE

    across = max(2, math.ceil(math.sqrt(3 * len(features))))  # half of the cells stay empty
    down = max(2, math.ceil(2 * len(features) / across))
    perplexity = min(30.0, (len(features) - 1) / 3)
    unit = features / np.linalg.norm(features, axis=1, keepdims=True).clip(1e-12)
    flat = TSNE(perplexity=perplexity, init="pca", random_state=seed).fit_transform(unit)
    low, high = flat.min(axis=0), flat.max(axis=0)
    flat = (flat - low) / (high - low).clip(1e-12) * [across - 1, down - 1]
    cells = np.stack(np.meshgrid(np.arange(across), np.arange(down)), axis=-1).reshape(-1, 2)
    distances = ((flat[:, None] - cells[None]) ** 2).sum(axis=-1)
    taken = cells[linear_sum_assignment(distances)[1]]
    taken = taken - taken.min(axis=0)
    frame = 3
    side = thumbnails[0].shape[0] + 2 * frame
    canvas = np.zeros((*(side * (taken.max(axis=0) + 1))[::-1], 4), np.uint8)
    for (column, row), picture, number in zip(taken, thumbnails, classes, strict=True):
        cell = canvas[row * side : (row + 1) * side, column * side : (column + 1) * side]
        if number < len(PALETTE):
            cell[1:-1, 1:-1] = (*PALETTE[number], 255)
        cell[frame:-frame, frame:-frame, :3] = picture
        cell[frame:-frame, frame:-frame, 3] = 255
    return canvas
