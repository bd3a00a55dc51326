"""The two ways to compute the same views: the fused kernel, and PIL as its oracle."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from pirl_plugin.images.columns import BLUR
from pirl_plugin.views.geometry import Box
from pirl_plugin.views.kernels.blur import blur_views
from pirl_plugin.views.kernels.photometric_pil import apply_pil
from pirl_plugin.views.kernels.render import render_views
from pirl_plugin.views.kernels.resize import crop_resize_pil, crop_resize_torch

Bytes = NDArray[np.uint8]
Corners = NDArray[np.int32]
Rows = NDArray[np.float32]


class Backend(NamedTuple):
    """How views are computed; both backends take the same random draws.

    Attributes:
        crop_resize: (pixels uint8 (3, H, W), box, size) → uint8 (size, size, 3).
        render: (canvas uint8 (H, W, 3), corners int32 (n, 2), rows float32 (n, NUM_COLUMNS), size)
            → uint8 (n, 3, size, size): views cut out at ``corners`` with their rows applied.
    """

    crop_resize: Callable[[torch.Tensor, Box, int], Bytes]
    render: Callable[[Bytes, Corners, Rows, int], torch.Tensor]


def render_fused(canvas: Bytes, corners: Corners, rows: Rows, size: int) -> torch.Tensor:
    """All views of a canvas in one call of the kernel, and one more for those to be blurred."""
    views = np.empty((len(rows), 3, size, size), np.uint8)
    if render_views(canvas, corners, rows, views):
        blur_views(views, rows[:, BLUR])
    return torch.from_numpy(views)


def render_pil(canvas: Bytes, corners: Corners, rows: Rows, size: int) -> torch.Tensor:
    """The oracle of ``render_fused``: one view after the other through PIL."""
    image = Image.fromarray(canvas)
    views = []
    for (top, left), row in zip(corners.tolist(), rows, strict=True):
        view = apply_pil(image.crop((left, top, left + size, top + size)), row)
        views.append(np.asarray(view).transpose(2, 0, 1))
    return torch.from_numpy(np.stack(views))


BACKENDS = {
    "fused": Backend(crop_resize_torch, render_fused),
    "pil": Backend(crop_resize_pil, render_pil),
}
