"""Scores s/τ of embeddings against the memory bank (Eq. 3)."""

from __future__ import annotations

import torch
from torch import Tensor


def bank_scores(
    queries: Tensor, own: Tensor, table: Tensor, negatives: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    """Cosine similarity over τ, of each query with its own row and with the drawn rows.

    Two ways to the same numbers, whichever takes less memory: gather the drawn rows once for all
    terms, B·N·D values; or score the whole table and pick the drawn scores, T·B·rows values and as
    many for their gradient, which is the better way for small data sets.

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
    score = _pick_drawn if _picking_is_smaller(queries, table, negatives) else _gather_drawn
    return positive / temperature, score(queries, table, negatives) / temperature


def _picking_is_smaller(queries: Tensor, table: Tensor, negatives: Tensor) -> bool:
    (terms, batch, dim), rows = queries.shape, table.shape[0]
    converted = 0 if table.dtype == queries.dtype else rows * dim
    return 2 * terms * batch * rows + converted <= batch * negatives.shape[1] * dim


def _gather_drawn(queries: Tensor, table: Tensor, negatives: Tensor) -> Tensor:
    """``(T, B, N)`` through the gathered rows ``(B, N, D)``, read once for all terms."""
    drawn = table[negatives].to(queries.dtype)
    return torch.bmm(drawn, queries.permute(1, 2, 0)).permute(2, 0, 1)


def _pick_drawn(queries: Tensor, table: Tensor, negatives: Tensor) -> Tensor:
    """``(T, B, N)`` out of the scores of all rows ``(T, B, rows)``."""
    scores = queries @ table.to(queries.dtype).T
    return scores.gather(2, negatives.expand(queries.shape[0], -1, -1))
