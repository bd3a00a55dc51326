"""A fixed permutation of the rows, computed and never stored."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar, Protocol

from pirl_plugin.memory.feistel import FeistelPermutation

if TYPE_CHECKING:
    from torch import Tensor

_GOLDEN = 0.6180339887498949
_MOST = 2**31  # rows; products of two row numbers are exact in int64


class Permutation(Protocol):
    """A bijection of {0, …, num_rows − 1}.

    Attributes:
        version: of the way of dealing rows, which saved shards keep.
    """

    version: ClassVar[int]

    def position(self, rows: Tensor) -> Tensor:
        """Where the permutation puts each row: int64, of the shape of ``rows``."""


class RowPermutation:
    """Row r goes to r·a mod num_rows, with a coprime to num_rows and near its golden section.

    Of all multiples, those of the golden ratio lie most evenly on a circle (Knuth, The Art of
    Computer Programming, Sec. 6.4): of any run of neighbouring rows, which often share a class,
    every part of the positions gets its share, give or take a few. Two operations on tensors.

    Args:
        num_rows: size of the set, at most 2³¹.

    Example:
        >>> import torch
        >>> RowPermutation(10).position(torch.arange(10)).tolist()
        [0, 7, 4, 1, 8, 5, 2, 9, 6, 3]
    """

    version: ClassVar[int] = 2

    def __init__(self, num_rows: int) -> None:
        if num_rows > _MOST:
            raise ValueError(
                f"num_train_samples = {num_rows}: expected at most {_MOST} images in a sharded "
                f"bank; give fewer"
            )
        self.num_rows = num_rows
        multiplier = max(1, round(num_rows * _GOLDEN))
        while math.gcd(multiplier, num_rows) != 1:
            multiplier += 1
        self.multiplier = multiplier

    def position(self, rows: Tensor) -> Tensor:
        """See :meth:`Permutation.position`."""
        return (rows * self.multiplier) % self.num_rows


PERMUTATIONS: dict[int, type[RowPermutation] | type[FeistelPermutation]] = {
    kind.version: kind for kind in (FeistelPermutation, RowPermutation)
}
