"""The covariant pretext tasks, PIRL's baselines: which permutation, which rotation was it?

The same crops, photometric augmentation and permutations as PIRL's transformed views, with the
transformation's number as the label, and without the image I, which these tasks do not see.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from pirl_plugin.utils.value_checks import refuse
from pirl_plugin.views.base import black
from pirl_plugin.views.checks import make_photometric
from pirl_plugin.views.jigsaw import JigsawViews
from pirl_plugin.views.rotation import RotationViews


class JigsawTask(JigsawViews):
    """Nine patches in an order of the permutation set, and the order's number.

    Source: Noroozi & Favaro 2016 (arXiv 1603.09246); Goyal et al. 2019 (arXiv 1905.01235).

    Args:
        num_permutations: size of the permutation set, and so of the classifier's output.
        patches_crop_size, patch_size, grid, patches_scale, flip, backend, **photometric: as the
            jigsaw's.

    Raises:
        ValueError: for a parameter that is unknown or out of range.
    """

    def __init__(
        self,
        num_permutations: int,
        patches_crop_size: int = 255,
        patch_size: int = 64,
        grid: int = 3,
        patches_scale: Sequence[float] = (0.6, 1.0),
        flip: str = "patch",
        backend: str = "fused",
        **photometric: Any,
    ) -> None:
        # image_size and image_scale, which this task would not use, are refused here.
        make_photometric(photometric, list(inspect.signature(JigsawTask).parameters)[:-1])
        if num_permutations is None:
            expected = "a number, as the classifier has one output for each permutation"
            remedy = "set it to one such as 2000; all 9! = 362,880 are too many"
            refuse("num_permutations", None, expected, remedy)
        super().__init__(
            patches_crop_size=patches_crop_size,
            patch_size=patch_size,
            grid=grid,
            patches_scale=patches_scale,
            num_permutations=num_permutations,
            flip=flip,
            backend=backend,
            **photometric,
        )

    def __call__(self, pixels: torch.Tensor, rng: np.random.Generator) -> dict[str, torch.Tensor]:
        """Make the puzzle of one image, uint8 (3, H, W).

        Returns:
            ``patches`` uint8 (grid², 3, P, P) and ``label`` int64 (), in [0, num_permutations).
        """
        number, patches = self._shuffled(pixels, rng)
        return {"patches": patches, "label": torch.tensor(number)}

    def placeholder(self) -> dict[str, torch.Tensor]:
        """Black patches, for an image that could not be read; the collator masks its label."""
        patches = black(self.grid**2, 3, self.patch_size, self.patch_size)
        return {"patches": patches, "label": torch.tensor(0)}


class RotationTask(RotationViews):
    """A standard view turned by 0, 90, 180 or 270 degrees, and the number of quarter turns.

    Source: Gidaris et al. 2018 (arXiv 1803.07728). Args as the rotation's.
    """

    def __call__(self, pixels: torch.Tensor, rng: np.random.Generator) -> dict[str, torch.Tensor]:
        """Make the turned view of one image, uint8 (3, H, W).

        Returns:
            ``rotated`` uint8 (3, S, S) and ``label`` int64 (), quarters counter-clockwise.
        """
        quarters, rotated = self._turned(pixels, rng)
        return {"rotated": rotated, "label": torch.tensor(quarters)}

    def placeholder(self) -> dict[str, torch.Tensor]:
        """A black view, for an image that could not be read; the collator masks its label."""
        return {"rotated": black(3, self.image_size, self.image_size), "label": torch.tensor(0)}
