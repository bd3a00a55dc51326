"""The image I and a jigsaw of nine patches (App. A.1), optionally from a rotated crop (Sec. 4.3).

The module also has the covariant pretext task, a baseline: predict the permutation.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pirl_plugin.system.failures import Refused, check, check_name
from pirl_plugin.views.base import AREA_SHARES, Views, size_of_usual_crops
from pirl_plugin.views.kernels import render
from pirl_plugin.views.photometric import check_limits
from pirl_plugin.views.pixels import random_resized_crop

_FLIPS = ("patch", "image", "none")
# Sides of the paper's image, crop and patch, pixels.
_PAPER_IMAGE = 224
_PAPER_CROP = 255
_PAPER_PATCH = 64

GREEDY_LIMIT = 10_000
"""Size of the largest set chosen by Hamming distance; see ``PermutationSet``."""

_Orders = NDArray[np.int16]
_POOL = 1024
_LISTED = 9  # largest number of patches for listing all orders
_LEAST_YIELD = 0.005  # share of the set so far; a pool that adds less is nearly exhausted


class JigsawViews(Views):
    """The image I, and nine patches of another crop in a random order (App. A.1).

    Args:
        image_size: side of I in pixels.
        patches_crop_size: side of the patch crop in pixels (default: the paper's 255 for 224-px
            images, scaled in proportion for others).
        patch_size: side of a patch in pixels, at most one cell, ``patches_crop_size // grid``
            (default: 64 for 224-px images, scaled in proportion for others).
        grid: cells per side; the paper's 3 gives nine patches.
        image_scale: smallest and largest crop area for I, as fractions of the image.
        patches_scale: smallest and largest crop area for the patches (in the paper at least 60 %).
        num_permutations: size of the permutation set; None for all orders (Sec. 4.2).
        flip: what to mirror with probability ``flip_p``: each ``patch`` separately, the ``image``
            (the crop before it is cut), or ``none``. The paper does not specify it. VISSL and the
            models published with it use ``patch``.
        **photometric: options for :class:`~pirl_plugin.views.photometric.Photometric`; each patch
            draws its own parameters.

    Raises:
        ValueError: an argument has the wrong type or is out of range.

    Example:
        >>> sample = JigsawViews()(torch.zeros(3, 300, 400, dtype=torch.uint8))
        >>> {name: tuple(view.shape) for name, view in sample.items()}
        {'images': (3, 224, 224), 'patches': (9, 3, 64, 64)}
        >>> JigsawViews(112).patch_size
        32
    """

    _turns = False

    def __init__(
        self,
        image_size: int = 224,
        patches_crop_size: int | None = None,
        patch_size: int | None = None,
        grid: int = 3,
        image_scale: Sequence[float] = (0.08, 1.0),
        patches_scale: Sequence[float] = (0.6, 1.0),
        num_permutations: int | None = None,
        flip: str = "patch",
        **photometric: Any,
    ) -> None:
        super().__init__(image_size, image_scale, **photometric)
        if patches_crop_size is None:
            patches_crop_size = _in_proportion(_PAPER_CROP, image_size)
        if patch_size is None:
            patch_size = _in_proportion(_PAPER_PATCH, image_size)
        cell = patches_crop_size // grid
        if not 0 < patch_size <= cell:
            raise Refused(
                f"patches of {patch_size} px do not fit into cells of {cell} px "
                f"(patches_crop_size {patches_crop_size} // grid {grid}). Choose a smaller "
                f"patch_size or grid, or a larger patches_crop_size."
            )
        check_name("flip", flip, _FLIPS)
        self.patches_crop_size = patches_crop_size
        self.patch_size = patch_size
        self.grid = grid
        self.patches_scale = check_limits("patches_scale", patches_scale, 1, AREA_SHARES)
        self.flip = flip
        self.permutations = PermutationSet(num_permutations, grid * grid)

    @property
    def size_to_decode_for(self) -> int:
        """Image view size, in pixels, that needs as much resolution by default as these views."""
        of_patches = size_of_usual_crops(self.patches_crop_size, self.patches_scale)
        return max(super().size_to_decode_for, of_patches)

    def _make(self, pixels: torch.Tensor, rng: np.random.Generator) -> dict[str, torch.Tensor]:
        image = self._standard_view(pixels, rng)
        _, patches = self._shuffled(pixels, rng)
        return {"images": image, "patches": patches}

    def _shuffled(self, pixels: torch.Tensor, rng: np.random.Generator) -> tuple[int, torch.Tensor]:
        """Return the order's number in the set, and the patches (grid², C, P, P) in that order."""
        crop = random_resized_crop(pixels, self.patches_scale, self.patches_crop_size, rng)
        if self._turns:
            crop = np.ascontiguousarray(np.rot90(crop, int(rng.integers(4))))
        number, order = self.permutations.draw(rng)
        corners = patch_offsets(self.patches_crop_size, self.grid, self.patch_size, rng)
        rows = self.photometric.sample(rng, len(corners), crop)
        if self.flip == "none":
            rows["flip"] = 0
        elif self.flip == "image":
            # In a mirrored crop, each patch is mirrored and at the mirrored position.
            rows["flip"] = rows["flip"][0]
            if rows["flip"][0]:
                corners[:, 1] = self.patches_crop_size - self.patch_size - corners[:, 1]
        return number, render(crop, corners[order], rows, self.patch_size)


class RotationJigsawViews(JigsawViews):
    """The image I, and the jigsaw of a rotated crop (Sec. 4.3). Arguments: :class:`JigsawViews`.

    Example:
        >>> views = RotationJigsawViews(image_size=64, patches_crop_size=66, patch_size=16)
        >>> sample = views(torch.zeros(3, 300, 400, dtype=torch.uint8))
        >>> {name: tuple(view.shape) for name, view in sample.items()}
        {'images': (3, 64, 64), 'patches': (9, 3, 16, 16)}
    """

    _turns = True


class JigsawTask(JigsawViews):
    """``patches``, with the number of their order in the permutation set as ``label``, int64 ().

    This pretext task does not use I.

    Source: Noroozi & Favaro 2016 (arXiv 1603.09246); Goyal et al. 2019 (arXiv 1905.01235).

    Args:
        num_permutations: size of the permutation set, the number of classes.
        **parameters: arguments for :class:`JigsawViews`.

    Raises:
        ValueError: an argument has the wrong type or is out of range.
    """

    def __init__(self, num_permutations: int, **parameters: Any) -> None:
        super().__init__(num_permutations=num_permutations, **parameters)

    def _make(self, pixels: torch.Tensor, rng: np.random.Generator) -> dict[str, torch.Tensor]:
        number, patches = self._shuffled(pixels, rng)
        return {"patches": patches, "label": torch.tensor(number)}


def _in_proportion(side: int, image_size: int) -> int:
    """Scale one of the paper's sizes to a different image size."""
    return max(1, round(side * image_size / _PAPER_IMAGE))


def patch_offsets(
    crop_size: int, grid: int, patch_size: int, rng: np.random.Generator
) -> NDArray[np.int32]:
    """Draw one patch per grid cell (App. A.1: 64 px in each 85 px cell of a 255 px crop).

    Positions are uniform inside the cell: for the paper's sizes 0 … 21 in both directions, both
    ends included.

    Args:
        crop_size: side of the square crop, pixels.
        grid: cells per side.
        patch_size: side of a patch, pixels, at most ``crop_size // grid``.
        rng: random generator.

    Returns:
        int32 (grid², 2): top and left of each patch in the crop, row by row.
    """
    cell = crop_size // grid
    inside = rng.integers(0, cell - patch_size + 1, size=(grid * grid, 2), dtype=np.int32)
    corners = np.indices((grid, grid), np.int32).reshape(2, -1).T * np.int32(cell)
    return inside + corners


class PermutationSet:
    """A set of patch orders, from 1 to all 9! = 362,880 (Sec. 4.2), with uniform draws.

    The set is determined by its size and ``num_patches``. Up to ``GREEDY_LIMIT`` orders are chosen
    greedily for a large Hamming distance, as in Noroozi & Favaro 2016 (arXiv 1603.09246, Alg. 1),
    but from random candidates instead of a list of all n!. In larger sets, nearly every greedy
    choice would have the smallest possible distance, so orders are only distinct and uniform.

    Args:
        num_permutations: 1 … num_patches!, or None for all orders, which are not listed.
        num_patches: length of an order.

    Attributes:
        orders: int16 (num_permutations, num_patches), or None for all orders.

    Raises:
        ValueError: ``num_permutations`` is out of range.

    Example:
        >>> PermutationSet(100).orders.shape
        (100, 9)
    """

    def __init__(self, num_permutations: int | None = None, num_patches: int = 9) -> None:
        most = math.factorial(num_patches)
        self.num_patches = num_patches
        self.orders: _Orders | None = None
        if num_permutations is None:
            return
        fits = isinstance(num_permutations, Integral) and 1 <= num_permutations <= most
        expected = f"a whole number from 1 to {most} for {num_patches} patches, or None for all"
        check("num_permutations", num_permutations, fits, expected)
        rng = np.random.default_rng(0)
        greedy = num_permutations if num_permutations <= GREEDY_LIMIT else 0
        chosen = _spread(greedy, num_patches, rng)
        self.orders = _fill_up(chosen, num_permutations, num_patches, rng)

    def draw(self, rng: np.random.Generator) -> tuple[int, NDArray[np.int64]]:
        """Draw one order uniformly.

        Args:
            rng: random generator.

        Returns:
            The order's number in ``orders`` (−1 for all orders), and the order, int64
            (num_patches,): position i shows patch ``order[i]``.
        """
        if self.orders is None:
            return -1, rng.permutation(self.num_patches)
        number = int(rng.integers(len(self.orders)))
        return number, self.orders[number].astype(np.int64)


def _spread(size: int, num_patches: int, rng: np.random.Generator) -> _Orders:
    """Choose up to ``size`` orders greedily; lower the required distance if candidates run out.

    The product of two one-hot codes counts the positions where two orders agree, so one matrix
    product compares a pool with all chosen orders. Distinct orders differ in two or more positions,
    so a required distance below 3 has no effect, and the search stops there.

    Returns:
        int16 (at most size, num_patches).
    """
    codes = np.zeros((size, num_patches * num_patches), np.float32)
    orders: _Orders = np.zeros((size, num_patches), np.int16)
    count = 0
    agree = 0  # positions in which an order may equal a chosen one
    while count < size and agree <= num_patches - 3:
        # Random candidates, far enough from all chosen orders.
        pool = rng.permuted(np.tile(np.arange(num_patches, dtype=np.int16), (_POOL, 1)), axis=1)
        pool_codes = np.eye(num_patches, dtype=np.float32)[pool].reshape(_POOL, -1)
        is_far = (pool_codes @ codes[:count].T).max(axis=1, initial=0) <= agree
        # Take them one by one, unless one is too close to those just taken.
        before = count
        for order, code in zip(pool[is_far], pool_codes[is_far], strict=True):
            if count < size and (codes[before:count] @ code).max(initial=0) <= agree:
                orders[count] = order
                codes[count] = code
                count += 1
        if count - before <= _LEAST_YIELD * count:  # few orders are left at this distance
            agree += 1
    return orders[:count]


def _fill_up(chosen: _Orders, size: int, num_patches: int, rng: np.random.Generator) -> _Orders:
    """Add distinct uniform orders to ``chosen`` until there are ``size``."""
    if len(chosen) == size:
        return chosen
    if num_patches <= _LISTED:
        listed = list(itertools.permutations(range(num_patches)))
        pool = rng.permutation(np.array(listed, np.int16))
    else:  # among so many orders, few random ones are equal
        pool = rng.permuted(np.tile(np.arange(num_patches, dtype=np.int16), (2 * size, 1)), axis=1)
    candidates = np.concatenate([chosen, pool])
    # Keep the first occurrence of each order, chosen ones first.
    _, first = np.unique(candidates, axis=0, return_index=True)
    return candidates[np.sort(first)[:size]]
