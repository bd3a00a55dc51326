"""A fixed pseudo-random permutation of the rows, computed and never stored."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pirl_plugin.memory.philox import philox4x32

_ROUNDS = 6


class RowPermutation:
    """A bijection of {0, …, num_rows − 1}: a Feistel network on two digits, with cycle walking.

    A row r = left·s + right, s = ⌈√num_rows⌉, goes through rounds
    (left, right) ← (right, left + F(right) mod s), where F is Philox; what falls outside goes round
    again. It deals neighbouring rows, which often share a class, evenly to the ranks.

    Args:
        num_rows: size of the set.
        seed: which permutation.

    Example:
        >>> sorted(RowPermutation(10).position(torch.arange(10)).tolist())
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """

    def __init__(self, num_rows: int, seed: int = 0) -> None:
        self.num_rows = num_rows
        self.base = math.isqrt(num_rows - 1) + 1
        self.key = (seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF)

    def position(self, rows: Tensor) -> Tensor:
        """Where the permutation puts each row: int64, of the shape of ``rows``."""
        positions = self._network(rows)
        while bool((outside := positions >= self.num_rows).any()):
            positions = torch.where(outside, self._network(positions), positions)
        return positions

    def _network(self, values: Tensor) -> Tensor:
        left = values.div(self.base, rounding_mode="floor")
        right = values % self.base
        zero = torch.zeros_like(right)
        for turn in range(_ROUNDS):
            word = philox4x32((right, zero + turn, zero, zero), self.key)[0]
            left, right = right, (left + word) % self.base
        return left * self.base + right
