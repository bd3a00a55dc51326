"""The image I alone: NPID, λ = 0 (Wu et al. 2018)."""

from __future__ import annotations

import numpy as np
import torch

from pirl_plugin.views.base import Views, black


class ImageViews(Views):
    """I alone, for λ = 0: NPID has no transformed version. Args as the rotation's.

    For one generator it is the same I as every other task's.

    Example:
        >>> views = ImageViews(image_size=32)
        >>> sample = views(torch.zeros(3, 60, 80, dtype=torch.uint8), np.random.default_rng(0))
        >>> {name: tuple(view.shape) for name, view in sample.items()}
        {'images': (3, 32, 32)}
    """

    def __call__(self, pixels: torch.Tensor, rng: np.random.Generator) -> dict[str, torch.Tensor]:
        """``images`` uint8 (3, S, S), of an image uint8 (3, H, W)."""
        return {"images": self._standard_view(pixels, rng)}

    def placeholder(self) -> dict[str, torch.Tensor]:
        """A black view of the same shape, for an image that could not be read."""
        return {"images": black(3, self.image_size, self.image_size)}
