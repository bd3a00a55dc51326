"""Scores s/τ of embeddings against the memory bank (Eq. 3)."""

from __future__ import annotations

import torch
from torch import Tensor


def bank_scores(
    queries: Tensor, own: Tensor, table: Tensor, negatives: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    """Cosine similarity over τ, of each query with its own row and with the drawn rows.

    Two ways to the same numbers, whichever touches less memory: gather the drawn rows once for all
    terms, B·N·D values, or score the whole table and pick the drawn scores, T·B·rows values. The
    second is the better one for small data sets.

    Args:
        queries: ``(T, B, D)`` unit-norm embeddings of the loss's T terms, float32 or float64.
        own: ``(B, D)``, the own rows.
        table: ``(rows, D)`` unit-norm rows, any floating type.
        negatives: ``(B, N)`` int64, the drawn rows of the table.
        temperature: τ > 0.

    Returns:
        ``(T, B)`` and ``(T, B, N)``, in the queries' type.
    """
    positive = torch.einsum("tbd,bd->tb", queries, own.to(queries.dtype))
    (terms, _, dim), (_, count) = queries.shape, negatives.shape
    score = _pick_drawn if terms * table.shape[0] <= count * dim else _gather_drawn
    return positive / temperature, score(queries, table, negatives) / temperature


def _gather_drawn(queries: Tensor, table: Tensor, negatives: Tensor) -> Tensor:
    """``(T, B, N)`` through the gathered rows ``(B, N, D)``, read once for all terms."""
    drawn = table[negatives].to(queries.dtype)
    return torch.bmm(drawn, queries.permute(1, 2, 0)).permute(2, 0, 1)


def _pick_drawn(queries: Tensor, table: Tensor, negatives: Tensor) -> Tensor:
    """``(T, B, N)`` out of the scores of all rows ``(T, B, rows)``."""
    scores = queries @ table.to(queries.dtype).T
    return scores.gather(2, negatives.expand(queries.shape[0], -1, -1))
