"""The image I and a rotated view of it (App. A.2)."""

from __future__ import annotations

import numpy as np
import torch

from pirl_plugin.views.base import Views, black


class RotationViews(Views):
    """I, and a second standard view turned by 0, 90, 180 or 270 degrees (App. A.2).

    Args:
        image_size: side of both views, pixels.
        image_scale: smallest and largest share of the image's area for both crops.
        backend: ``fused`` (numba kernel) or ``pil`` (its oracle).
        **photometric: parameters of ``Photometric``; each view draws its own.

    Raises:
        ValueError: for a parameter that is unknown or out of range.

    Example:
        >>> views = RotationViews()
        >>> sample = views(torch.zeros(3, 300, 400, dtype=torch.uint8), np.random.default_rng(0))
        >>> {name: tuple(view.shape) for name, view in sample.items()}
        {'images': (3, 224, 224), 'rotated': (3, 224, 224)}
    """

    def __call__(self, pixels: torch.Tensor, rng: np.random.Generator) -> dict[str, torch.Tensor]:
        """Make the views of one image.

        Args:
            pixels: uint8 (3, H, W), RGB.
            rng: generator that all draws come from.

        Returns:
            ``images`` and ``rotated``, each uint8 (3, S, S).
        """
        drawn = self._draw(pixels, rng)
        rotated = self._turned(pixels, rng)[1]
        return {"images": self._render(*drawn), "rotated": rotated}

    def _turned(self, pixels: torch.Tensor, rng: np.random.Generator) -> tuple[int, torch.Tensor]:
        """The number of quarters, counter-clockwise, and a standard view turned by it."""
        upright = self._standard_view(pixels, rng)
        quarters = int(rng.integers(4))
        return quarters, torch.rot90(upright, quarters, dims=(1, 2)).contiguous()

    def placeholder(self) -> dict[str, torch.Tensor]:
        """Black views of the same shapes, for an image that could not be read."""
        shape = (3, self.image_size, self.image_size)
        return {"images": black(*shape), "rotated": black(*shape)}
