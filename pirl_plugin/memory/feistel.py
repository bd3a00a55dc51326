"""The permutation of version 1: shards saved before version 2 are dealt by it."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor

from pirl_plugin.memory.philox import philox4x32

_ROUNDS = 6


class FeistelPermutation:
    """A bijection of {0, …, num_rows − 1}: a Feistel network on two digits, with cycle walking.

    A row r = left·s + right, s = ⌈√num_rows⌉, goes through rounds
    (left, right) ← (right, left + F(right) mod s), where F is Philox; what falls outside goes round
    again. It takes hundreds of operations on tensors, which is why there is
    :class:`~pirl_plugin.memory.permutation.RowPermutation`.

    Args:
        num_rows: size of the set.
        seed: which permutation.

    Example:
        >>> import torch
        >>> sorted(FeistelPermutation(10).position(torch.arange(10)).tolist())
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """

    version: ClassVar[int] = 1

    def __init__(self, num_rows: int, seed: int = 0) -> None:
        self.num_rows = num_rows
        self.base = math.isqrt(num_rows - 1) + 1
        self.key = (seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF)
        # Where the walk of each number outside ends: at most 2·s of them, walked once and for all,
        # so that a GPU need not be asked whether one is left. Those of a cycle that lies outside
        # come back to where they began; no row ever gets there.
        starts = torch.arange(num_rows, self.base**2)
        ends = self._network(starts)
        while (walking := (ends >= num_rows) & (ends != starts)).any():
            ends = torch.where(walking, self._network(ends), ends)
        self._ends = {torch.device("cpu"): ends}

    def position(self, rows: Tensor) -> Tensor:
        """Where the permutation puts each row: int64, of the shape of ``rows``."""
        if rows.device not in self._ends:
            self._ends[rows.device] = self._ends[torch.device("cpu")].to(rows.device)
        ends = self._ends[rows.device]
        positions = self._network(rows)
        if ends.numel() == 0:  # a square number of rows
            return positions
        outside = positions - self.num_rows
        return torch.where(outside < 0, positions, ends[outside.clamp(min=0)])

    def _network(self, values: Tensor) -> Tensor:
        left = values.div(self.base, rounding_mode="floor")
        right = values % self.base
        zero = torch.zeros_like(right)
        for turn in range(_ROUNDS):
            word = philox4x32((right, zero + turn, zero, zero), self.key)[0]
            left, right = right, (left + word) % self.base
        return left * self.base + right
