"""The memory bank m: a unit vector for each image, the moving average of f(v_I) (Sec. 2.2)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from pirl_plugin.memory.negatives import Draw

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_BLOCK = 65_536  # rows drawn from one generator; their values do not depend on who holds them


class MemoryBank(nn.Module):
    """``num_rows`` unit vectors, random at first, as in Wu et al. 2018; all of them on each rank.

    Args:
        num_rows: |D|, the number of images.
        dim: width of the embeddings, 128 in the paper.
        momentum: weight of the old row in the moving average, 0.5 in the paper.
        dtype: ``float32``, ``bfloat16`` or ``float16``; arithmetic is float32 or wider in any case.
        seed: of the initial rows.

    Attributes:
        rows: ``(num_rows, dim)``, the unit vectors.
        visited: ``(num_rows,)`` bool, whether a row has been moved yet.

    Raises:
        ValueError: an argument cannot be used.
    """

    rows: Tensor
    visited: Tensor
    persistent = True  # whether the rows are part of the host's checkpoint

    def __init__(
        self, num_rows: int, dim: int, momentum: float = 0.5, dtype: str = "float32", seed: int = 0
    ) -> None:
        super().__init__()
        if num_rows < 2:
            raise ValueError(
                f"a memory bank of {num_rows} rows: contrast needs at least 2 images; check "
                f"config.DATA.TRAIN.DATA_PATHS"
            )
        if not 0 <= momentum < 1:
            raise ValueError(
                f"bank.momentum = {momentum}: expected a weight in [0, 1), such as 0.5"
            )
        if dtype not in DTYPES:
            raise ValueError(f"bank.dtype = {dtype!r}: expected one of {', '.join(DTYPES)}")
        self.num_rows = num_rows
        self.momentum = momentum
        rows = _initial_rows(*self._span(), dim, seed, DTYPES[dtype])
        self.register_buffer("rows", rows, persistent=self.persistent)
        visited = torch.zeros(len(rows), dtype=torch.bool)
        self.register_buffer("visited", visited, persistent=self.persistent)

    def _span(self) -> tuple[int, int]:
        """First position held here, and the one after the last."""
        return 0, self.num_rows

    def own(self, rows: Tensor) -> Tensor:
        """The vectors of given images: ``(B, dim)`` for ``(B,)`` int64."""
        return self.rows[rows]

    def locate(self, negatives: Tensor) -> tuple[Tensor, Tensor]:
        """A table of vectors, and where in it the drawn images are: ``(B, N)`` int64."""
        return self.rows, negatives

    def places(self, rows: Tensor) -> Tensor:
        """Where in :attr:`rows` given images are, ``(B,)`` int64; −1 for those not on this rank."""
        return rows

    def draw(self, rows: Tensor, count: int, **options: Any) -> Draw:
        """Negatives for each image, as numbers of :attr:`rows`; options as of draw_negatives."""
        return Draw(rows, self.places(rows), len(self.rows), count, **options)

    @torch.no_grad()
    def update(self, rows: Tensor, embeddings: Tensor) -> Tensor:
        """Move rows towards new embeddings: row ← normalise(m·row + (1 − m)·f).

        A row that occurs several times (samplers pad by repetition) moves once, towards the mean of
        its embeddings, so that the outcome does not depend on their order.

        Args:
            rows: ``(B,)`` int64; negative entries are left out.
            embeddings: ``(B, dim)`` f(v_I), normalised here.

        Returns:
            ``(2,)`` float32: the summed norms of the moved rows before they were normalised, and
            their number. The mean is 1 where embeddings agree with what the bank remembers, and
            0.71 (for m = 0.5) where they are orthogonal to it.
        """
        # Sorted, so that equal rows follow each other, and the invalid come first. All shapes are
        # those of the batch: nothing here waits for a GPU to say how many rows there are.
        rows, order = rows.sort(stable=True)
        embeddings = normalize(embeddings[order].double())
        starts = torch.ones_like(rows, dtype=torch.bool)
        starts[1:] = rows[1:] != rows[:-1]
        group = starts.cumsum(0) - 1
        mean = torch.zeros_like(embeddings)
        mean.index_add_(0, group, embeddings)  # float64: the order of addition shows no more
        repeats = torch.zeros_like(rows).index_add_(0, group, torch.ones_like(rows))
        mean /= repeats.clamp(min=1)[:, None]
        groups = torch.full_like(rows, -1).index_copy_(0, group, rows)
        valid = groups >= 0
        # Left-over places repeat the last group, whose row is the largest; without any valid row,
        # row 0 is written as it is.
        places = torch.where(valid, groups, rows[-1]).clamp(min=0)
        moved = torch.lerp(mean, self.rows[places].double(), self.momentum)
        norms = moved.norm(dim=1).masked_fill(~valid, 0).sum()
        outcome = normalize(moved).to(self.rows.dtype)
        outcome = torch.where(valid[:, None], outcome, outcome.index_select(0, group[-1:]))
        any_valid = valid.any()
        self.rows[places] = torch.where(any_valid, outcome, self.rows[places])
        self.visited[places] |= any_valid
        return torch.stack([norms, valid.sum()]).float()

    def extra_repr(self) -> str:
        """Shape, type and momentum, for the log."""
        shape = tuple(self.rows.shape)
        return f"rows={shape} of {self.num_rows}, {self.rows.dtype}, momentum={self.momentum}"


def _initial_rows(start: int, stop: int, dim: int, seed: int, dtype: torch.dtype) -> Tensor:
    """Positions ``start`` to ``stop`` of the random bank of ``seed``."""
    rows = torch.empty(stop - start, dim, dtype=dtype)
    values = torch.empty(_BLOCK, dim)
    for block in range(start // _BLOCK, -(-stop // _BLOCK)):
        generator = torch.Generator().manual_seed((seed * 0x9E3779B1 + block) & 0xFFFFFFFF)
        values.uniform_(-1, 1, generator=generator)
        values /= values.norm(dim=1, keepdim=True)
        first, last = max(start, block * _BLOCK), min(stop, (block + 1) * _BLOCK)
        rows[first - start : last - start] = values[first - block * _BLOCK : last - block * _BLOCK]
    return rows
