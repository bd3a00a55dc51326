"""The image I and a rotated view of it (App. A.2), and the task to predict the rotation."""

from __future__ import annotations

import numpy as np
import torch

from pirl_plugin.views.base import Views


class RotationViews(Views):
    """I, and a second standard view turned by 0, 90, 180 or 270 degrees (App. A.2).

    Args:
        image_size: side of both views, pixels.
        image_scale: smallest and largest share of the image's area for both crops.
        **photometric: parameters of ``Photometric``; each view draws its own.

    Raises:
        ValueError: for a parameter that is out of range.

    Example:
        >>> sample = RotationViews()(torch.zeros(3, 300, 400, dtype=torch.uint8))
        >>> {name: tuple(view.shape) for name, view in sample.items()}
        {'images': (3, 224, 224), 'rotated': (3, 224, 224)}
    """

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each view, by name."""
        return {**super().shapes, "rotated": (3, self.image_size, self.image_size)}

    def _make(self, pixels: torch.Tensor, rng: np.random.Generator) -> dict[str, torch.Tensor]:
        image = self._standard_view(pixels, rng)
        return {"images": image, "rotated": self._turned(pixels, rng)[1]}

    def _turned(self, pixels: torch.Tensor, rng: np.random.Generator) -> tuple[int, torch.Tensor]:
        """The number of quarters, counter-clockwise, and a standard view turned by it."""
        upright = self._standard_view(pixels, rng)
        quarters = int(rng.integers(4))
        return quarters, torch.rot90(upright, quarters, dims=(1, 2)).contiguous()


class RotationTask(RotationViews):
    """``rotated``, a turned standard view, and its ``label``, quarter turns counter-clockwise.

    The covariant pretext task, one of PIRL's baselines: it does not see I.

    Source: Gidaris et al. 2018 (arXiv 1803.07728). Args as the rotation's.
    """

    labelled = True

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each view, by name."""
        return {"rotated": (3, self.image_size, self.image_size)}

    def _make(self, pixels: torch.Tensor, rng: np.random.Generator) -> dict[str, torch.Tensor]:
        quarters, rotated = self._turned(pixels, rng)
        return {"rotated": rotated, "label": torch.tensor(quarters)}
