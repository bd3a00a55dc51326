"""The image I and a jigsaw of nine patches (App. A.1), of a rotated crop too (§4.3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from pirl_plugin.images.columns import FLIP
from pirl_plugin.utils.value_checks import check_choice, refuse
from pirl_plugin.views.base import Views, black
from pirl_plugin.views.checks import check_scale, check_size
from pirl_plugin.views.geometry import patch_offsets
from pirl_plugin.views.kernels.backends import Bytes
from pirl_plugin.views.permutations import PermutationSet

FLIPS = ("patch", "image", "none")


class JigsawViews(Views):
    """I, and nine patches of another crop in a random order (App. A.1).

    Args:
        image_size: side of I, pixels.
        patches_crop_size: side of the crop that is cut into patches, pixels.
        patch_size: side of a patch, pixels, at most a cell: ``patches_crop_size // grid``.
        grid: cells a side; the paper's 3 gives nine patches.
        image_scale: smallest and largest share of the image's area for I's crop.
        patches_scale: smallest and largest share of the image's area for the crop that is cut (the
            paper: at least 60 %).
        num_permutations: size of the permutation set, None for all orders (§4.2).
        flip: how the transformed view is mirrored, each time with probability ``flip_p``:
            ``patch`` each patch on its own, ``image`` the whole crop before it is cut, ``none``.
            The paper does not say; ``patch`` is what VISSL does, so what the published models
            were trained with.
        backend: ``fused`` (numba kernel) or ``pil`` (its oracle).
        **photometric: parameters of ``Photometric``; each patch draws its own.

    Raises:
        ValueError: for a parameter that is unknown or out of range.

    Example:
        >>> views = JigsawViews()
        >>> sample = views(torch.zeros(3, 300, 400, dtype=torch.uint8), np.random.default_rng(0))
        >>> {name: tuple(view.shape) for name, view in sample.items()}
        {'images': (3, 224, 224), 'patches': (9, 3, 64, 64)}
    """

    _turns = False

    def __init__(
        self,
        image_size: int = 224,
        patches_crop_size: int = 255,
        patch_size: int = 64,
        grid: int = 3,
        image_scale: Sequence[float] = (0.08, 1.0),
        patches_scale: Sequence[float] = (0.6, 1.0),
        num_permutations: int | None = None,
        flip: str = "patch",
        backend: str = "fused",
        **photometric: Any,
    ) -> None:
        super().__init__(image_size, image_scale, backend, **photometric)
        self.patches_crop_size = check_size("patches_crop_size", patches_crop_size)
        self.patch_size = check_size("patch_size", patch_size)
        self.grid = check_size("grid", grid)
        self.patches_scale = check_scale("patches_scale", patches_scale)
        cell = patches_crop_size // grid
        if patch_size > cell:
            side = f"the side of a cell, patches_crop_size {patches_crop_size} // grid {grid}"
            remedy = "lower it, or raise patches_crop_size"
            refuse("patch_size", patch_size, f"at most {cell}, {side}", remedy)
        check_choice("flip", flip, FLIPS)
        self.flip = flip
        self.permutations = PermutationSet(num_permutations, grid * grid)

    def __call__(self, pixels: torch.Tensor, rng: np.random.Generator) -> dict[str, torch.Tensor]:
        """Make the views of one image.

        Args:
            pixels: uint8 (3, H, W), RGB.
            rng: generator that all draws come from.

        Returns:
            ``images`` uint8 (3, S, S) and ``patches`` uint8 (grid², 3, P, P).
        """
        drawn = self._draw(pixels, rng)
        patches = self._shuffled(pixels, rng)[1]
        return {"images": self._render(*drawn), "patches": patches}

    def _shuffled(self, pixels: torch.Tensor, rng: np.random.Generator) -> tuple[int, torch.Tensor]:
        """The order's number in the permutation set, and uint8 (grid², 3, P, P) in that order."""
        crop = self._random_crop(pixels, self.patches_scale, self.patches_crop_size, rng)
        if self._turns:
            crop = _turn(crop, int(rng.integers(4)))
        number, order = self.permutations.draw(rng)
        corners = patch_offsets(self.patches_crop_size, self.grid, self.patch_size, rng)
        rows = self.photometric.sample(rng, len(corners))
        if self.flip == "none":
            rows[:, FLIP] = 0
        elif self.flip == "image":
            # A patch of the mirrored crop is the mirrored patch from the mirrored place.
            rows[:, FLIP] = rows[0, FLIP]
            if rows[0, FLIP]:
                corners[:, 1] = self.patches_crop_size - self.patch_size - corners[:, 1]
        return number, self._backend.render(crop, corners[order], rows, self.patch_size)

    def placeholder(self) -> dict[str, torch.Tensor]:
        """Black views of the same shapes, for an image that could not be read."""
        patches = (self.grid**2, 3, self.patch_size, self.patch_size)
        return {"images": black(3, self.image_size, self.image_size), "patches": black(*patches)}


class RotationJigsawViews(JigsawViews):
    """I, and a jigsaw of a turned crop: rotate first, then cut (§4.3). Args as the jigsaw's.

    Example:
        >>> views = RotationJigsawViews(image_size=64, patches_crop_size=66, patch_size=16)
        >>> sample = views(torch.zeros(3, 300, 400, dtype=torch.uint8), np.random.default_rng(0))
        >>> {name: tuple(view.shape) for name, view in sample.items()}
        {'images': (3, 64, 64), 'patches': (9, 3, 16, 16)}
    """

    _turns = True


def _turn(canvas: Bytes, quarters: int) -> Bytes:
    """Turn (S, S, 3) counter-clockwise, moving pixels whole (twice as fast as byte by byte)."""
    turned = np.rot90(canvas.view("V3")[..., 0], quarters)
    return np.ascontiguousarray(turned).view(np.uint8).reshape(canvas.shape)
