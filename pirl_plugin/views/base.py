"""What the views of all tasks share: the untransformed view I, and the choice of backend."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from pirl_plugin.utils.value_checks import check_choice
from pirl_plugin.views.checks import check_pixels, check_scale, check_size, make_photometric
from pirl_plugin.views.geometry import random_resized_crop_box
from pirl_plugin.views.kernels.backends import BACKENDS, Bytes, Rows

IGNORED_LABEL = -1
"""Of an image that could not be read: neither loss nor memory bank sees it."""
RATIO = (3 / 4, 4 / 3)
_CORNER = np.zeros((1, 2), np.int32)


class Views:
    """What all tasks share: the untransformed view I, and the choice of backend."""

    def __init__(
        self,
        image_size: int = 224,
        image_scale: Sequence[float] = (0.08, 1.0),
        backend: str = "fused",
        **photometric: Any,
    ) -> None:
        self.image_size = check_size("image_size", image_size)
        self.image_scale = check_scale("image_scale", image_scale)
        check_choice("backend", backend, BACKENDS)
        self._backend = BACKENDS[backend]
        named = [p.name for p in inspect.signature(type(self)).parameters.values()]
        self.photometric = make_photometric(photometric, named[:-1])

    def _standard_view(self, pixels: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
        """Random resized crop, photometric augmentation and flip: uint8 (3, S, S)."""
        return self._render(*self._draw(pixels, rng))

    def _draw(self, pixels: torch.Tensor, rng: np.random.Generator) -> tuple[Bytes, Rows]:
        """What ``_render`` makes a standard view of: uint8 (S, S, 3) and float32 (1, NUM_COLUMNS).

        Tasks of two views cut both before they render I: the image is then still in the cache.
        """
        crop = self._random_crop(pixels, self.image_scale, self.image_size, rng)
        return crop, self.photometric.sample(rng, 1)

    def _render(self, crop: Bytes, rows: Rows) -> torch.Tensor:
        return self._backend.render(crop, _CORNER, rows, self.image_size)[0]

    def _random_crop(
        self,
        pixels: torch.Tensor,
        scale: tuple[float, float],
        size: int,
        rng: np.random.Generator,
    ) -> Bytes:
        check_pixels(pixels)
        height, width = pixels.shape[1:]
        box = random_resized_crop_box(height, width, scale, RATIO, rng)
        return self._backend.crop_resize(pixels, box, size)


def black(*shape: int) -> torch.Tensor:
    """Zeros, uint8."""
    return torch.zeros(shape, dtype=torch.uint8)
