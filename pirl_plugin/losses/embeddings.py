"""The embeddings that the loss is given."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import normalize

if TYPE_CHECKING:
    from collections.abc import Sequence


def check_shapes(outputs: Sequence[Tensor], target: Tensor, dim: int) -> None:
    """Refuse embeddings that do not fit the bank.

    Args:
        outputs: each ``(B, dim)``.
        target: ``(B,)``.
        dim: width of the bank's rows.

    Raises:
        ValueError: one is of another shape.
    """
    for embedding in outputs:
        if embedding.shape != (target.numel(), dim):
            raise ValueError(
                f"pirl_loss got embeddings of shape {tuple(embedding.shape)} for "
                f"{target.numel()} images: expected ({target.numel()}, {dim}); make the head's "
                f"out_dim and LOSS.pirl_loss.embedding_dim equal"
            )


def unit(embedding: Tensor, valid: Tensor) -> Tensor:
    """Unit-norm rows, in float32 or wider; zeros where they are not valid."""
    return normalize(embedding.masked_fill(~valid[:, None], 0).to(wide(embedding.dtype)))


def wide(dtype: torch.dtype) -> torch.dtype:
    """Float32, or a wider type."""
    return torch.promote_types(dtype, torch.float32)
