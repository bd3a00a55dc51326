"""The image I and a rotated view (App. A.2), and the pretext task of predicting the rotation."""

from __future__ import annotations

import numpy as np
import torch

from pirl_plugin.views.base import Views


class RotationViews(Views):
    """The image I, and a second view rotated by 0, 90, 180 or 270 degrees (App. A.2).

    Args:
        image_size: side of both views, pixels.
        image_scale: smallest and largest crop area for both views, as fractions of the image.
        **photometric: options for :class:`~pirl_plugin.views.photometric.Photometric`; each view
            draws its own parameters.

    Raises:
        ValueError: an argument has the wrong type or is out of range.

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
        """Return the number of counterclockwise quarter turns, and the rotated view."""
        upright = self._standard_view(pixels, rng)
        quarters = int(rng.integers(4))
        # With NumPy, because older torch does not turn uint16.
        rotated = np.rot90(upright.numpy(), quarters, axes=(1, 2))
        return quarters, torch.from_numpy(np.ascontiguousarray(rotated))


class RotationTask(RotationViews):
    """``transformed``, a rotated view, and ``label``, the number of counterclockwise quarter turns.

    This is the covariant pretext task, a baseline. It does not use I.

    Source: Gidaris et al. 2018 (arXiv 1803.07728). Arguments as in :class:`RotationViews`.
    """

    def _make(self, pixels: torch.Tensor, rng: np.random.Generator) -> dict[str, torch.Tensor]:
        quarters, rotated = self._turned(pixels, rng)
        return {"transformed": rotated, "label": torch.tensor(quarters)}
