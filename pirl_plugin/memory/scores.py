"""Scores s/τ of embeddings against the memory bank (Eq. 3)."""

from __future__ import annotations

import torch
from torch import Tensor


def bank_scores(
    queries: Tensor, bank: Tensor, rows: Tensor, negatives: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    """Cosine similarity over τ, of each query with its own row and with the drawn rows.

    The drawn rows are gathered once and serve all terms of the loss.

    Args:
        queries: ``(T, B, D)`` unit-norm embeddings of the loss's T terms, float32 or float64.
        bank: ``(|D|, D)`` unit-norm rows, any floating type.
        rows: ``(B,)`` int64, each data point's own row.
        negatives: ``(B, N)`` int64.
        temperature: τ > 0.

    Returns:
        ``(T, B)`` and ``(T, B, N)``, in the queries' type.
    """
    own = bank[rows].to(queries.dtype)  # (B, D)
    drawn = bank[negatives].to(queries.dtype)  # (B, N, D)
    positive = torch.einsum("tbd,bd->tb", queries, own)
    # (B, N, D) @ (B, D, T): one pass over the drawn rows for all terms
    scores = torch.bmm(drawn, queries.permute(1, 2, 0)).permute(2, 0, 1)
    return positive / temperature, scores / temperature
