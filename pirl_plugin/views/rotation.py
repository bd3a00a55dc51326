"""The image I and a rotated view of it (App. A.2), and the task of predicting the rotation."""

from __future__ import annotations

import numpy as np
import torch

from pirl_plugin.views.base import Views


class RotationViews(Views):
    """The image I, and a second view rotated by 0, 90, 180 or 270 degrees (App. A.2).

    Args:
        image_size: side of both views, pixels.
        image_scale: smallest and largest share of the image's area for both crops.
        **photometric: parameters of ``Photometric``; each view draws its own.

    Raises:
        ValueError: a parameter is out of range.

    Example:
        >>> sample = RotationViews()(torch.zeros(3, 300, 400, dtype=torch.uint8))
        >>> {name: tuple(view.shape) for name, view in sample.items()}
        {'images': (3, 224, 224), 'transformed': (3, 224, 224)}
    """

    def _make(self, pixels: torch.Tensor, rng: np.random.Generator) -> dict[str, torch.Tensor]:
        image = self._standard_view(pixels, rng)
        _, rotated = self._turned(pixels, rng)
        return {"images": image, "transformed": rotated}

    def _turned(self, pixels: torch.Tensor, rng: np.random.Generator) -> tuple[int, torch.Tensor]:
        """Return the number of quarter turns, counter-clockwise, and a view rotated by it."""
        upright = self._standard_view(pixels, rng)
        quarters = int(rng.integers(4))
        return quarters, torch.rot90(upright, quarters, dims=(1, 2)).contiguous()


class RotationTask(RotationViews):
    """``transformed``, a rotated view, and its ``label``, the quarter turns counter-clockwise.

    This is the covariant pretext task, a baseline of PIRL. It does not use I.

    Source: Gidaris et al. 2018 (arXiv 1803.07728). Args as in :class:`RotationViews`.
    """

    def _make(self, pixels: torch.Tensor, rng: np.random.Generator) -> dict[str, torch.Tensor]:
        quarters, rotated = self._turned(pixels, rng)
        return {"transformed": rotated, "label": torch.tensor(quarters)}
