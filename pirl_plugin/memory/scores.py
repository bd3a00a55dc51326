"""Scores s/τ of embeddings against the memory bank (Eq. 3), all of them at once.

This is what :mod:`pirl_plugin.memory.blocked` and :mod:`pirl_plugin.memory.triton_kernel` are
checked against, and the quickest way for small data sets and for draws that a batch shares.
"""

from __future__ import annotations

import torch
from torch import Tensor


def bank_scores(
    queries: Tensor, own: Tensor, table: Tensor, negatives: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    """Cosine similarity over τ, of each query with its own row and with the drawn rows.

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
    batch, count = negatives.shape
    if negatives.stride(0) == 0 or batch == 1:  # one draw for the batch
        scores = queries @ table[negatives[0]].to(queries.dtype).T
    elif prefers_whole_table(len(table), count):
        everything = queries @ table.to(queries.dtype).T
        scores = everything.gather(2, negatives.expand(queries.shape[0], -1, -1))
    else:
        drawn = table[negatives].to(queries.dtype)  # (B, N, D), read once for all terms
        scores = torch.bmm(drawn, queries.permute(1, 2, 0)).permute(2, 0, 1)
    return positive / temperature, scores / temperature


def prefers_whole_table(num_rows: int, num_negatives: int) -> bool:
    """Whether scoring the whole table and picking the drawn scores beats gathering the rows.

    A product with a row takes a CPU about a fifth of the time of fetching it by itself.
    """
    return num_rows <= 5 * num_negatives
