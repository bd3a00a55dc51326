"""Reference that updates a memory bank one row at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn.functional import normalize

if TYPE_CHECKING:
    from torch import Tensor


def loop_update(
    bank: Tensor, visited: Tensor, momentum: float, rows: Tensor, embeddings: Tensor
) -> None:
    """Update ``bank`` and ``visited``."""
    for row in sorted({int(row) for row in rows if row >= 0}):
        images = [
            normalize(f.double(), dim=0) for r, f in zip(rows, embeddings, strict=True) if r == row
        ]
        f = torch.stack(images).sum(dim=0) / len(images)
        moved = momentum * bank[row].double() + (1 - momentum) * f
        bank[row] = (moved / moved.norm()).to(bank.dtype)
        visited[row] = True
