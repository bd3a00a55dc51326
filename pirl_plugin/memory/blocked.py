"""Sums over the drawn rows, block by block: scores and gradient from one reading of the rows.

The three functions here and in :mod:`pirl_plugin.memory.triton_kernel` are the same; nothing of
size B × N × D exists in either. :mod:`pirl_plugin.losses.fused` makes the loss of them.

Throughout, ``queries`` are ``(T, B, D)``, embeddings over τ, so that their products with rows are
the scores s_k; ``table`` is ``(rows, D)`` of any floating type; ``draw`` is a ``Draw``, or
``(B, N)`` int64. Sums are over the N drawn rows m_k, in the queries' type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import softplus

from pirl_plugin.memory.softmax import Softmax, join

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pirl_plugin.memory.negatives import Draw

_BLOCK = 8192  # rows gathered at a time: 4 MB for 128 floats, which caches hold


def sigmoid_sums(
    queries: Tensor, table: Tensor, draw: Draw | Tensor, shift: Tensor
) -> tuple[Tensor, Tensor]:
    """Σ softplus(s_k − shift) ``(T, B)``, and Σ sigmoid(s_k − shift)·m_k ``(T, B, D)``."""
    values, weighted = queries.new_zeros(queries.shape[:2]), torch.zeros_like(queries)
    for point, _, rows, scores in _blocks(queries, table, draw):
        scores -= shift
        values[:, point] += softplus(scores).sum(dim=1)
        weighted[:, point].addmm_(scores.sigmoid_(), rows)
    return values, weighted


def softmax_sums(queries: Tensor, table: Tensor, draw: Draw | Tensor) -> Softmax:
    """Statistics of the softmax over the drawn rows."""
    terms, batch, _ = queries.shape
    parts = []
    for _, start, rows, scores in _blocks(queries, table, draw):
        top, at = scores.max(dim=1)
        others = scores.scatter(1, at[:, None], -torch.inf)
        second = others.amax(dim=1)
        weights = torch.exp(others - second.nan_to_num(neginf=0)[:, None])
        parts.append((top, start + at, rows[at], second, weights.sum(dim=1), weights @ rows))
    # Blocks come point by point: (B · blocks, T, …) → (blocks, T, B, …)
    stacked = (torch.stack(part) for part in zip(*parts, strict=True))
    views = [s.view(batch, -1, terms, *s.shape[2:]).movedim(0, 2) for s in stacked]
    return join(Softmax(*views))


def odds_sums(
    queries: Tensor, table: Tensor, draw: Draw | Tensor, log_total: Tensor, place: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Σ −log(1 − h_k) and Σ o_k, ``(T, B)``, and Σ o_k·m_k ``(T, B, D)``, with o = h/(1 − h).

    h_k = exp(s_k − log_total), ``log_total`` ``(T, B)``; ``place`` ``(T, B)`` int64 says which of
    the N to leave out.
    """
    values, weighted = queries.new_zeros(queries.shape[:2]), torch.zeros_like(queries)
    odds_sum = torch.zeros_like(values)
    for point, start, rows, scores in _blocks(queries, table, draw):
        h = torch.exp(scores - log_total[:, point, None])
        numbers = torch.arange(start, start + len(rows), device=rows.device)
        h.masked_fill_(numbers == place[:, point, None], 0)
        values[:, point] -= torch.log1p(-h).sum(dim=1)
        odds = h / (1 - h)
        odds_sum[:, point] += odds.sum(dim=1)
        weighted[:, point].addmm_(odds, rows)
    return values, odds_sum, weighted


def _blocks(
    queries: Tensor, table: Tensor, draw: Draw | Tensor
) -> Iterator[tuple[int, int, Tensor, Tensor]]:
    """Each data point's drawn rows in turn: its number, place of the block, rows, scores (T, n)."""
    count = draw.shape[1] if isinstance(draw, Tensor) else draw.num_negatives
    buffer = table.new_empty(min(_BLOCK, count), table.shape[1])
    for point in range(queries.shape[1]):
        drawn = draw[point] if isinstance(draw, Tensor) else draw.of(point)
        for start in range(0, len(drawn), _BLOCK):
            places = drawn[start : start + _BLOCK]
            rows = torch.index_select(table, 0, places, out=buffer[: len(places)])
            rows = rows.to(queries.dtype)
            yield point, start, rows, queries[:, point] @ rows.T
