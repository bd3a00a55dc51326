"""Scores s/τ of embeddings against the memory bank (Eq. 3), all of them at once.

The quickest way for small data sets and for draws that a batch shares, and what
:mod:`~pirl_plugin.losses.engines.blocked` and :mod:`~pirl_plugin.losses.engines.triton` are tested
against.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pirl_plugin.losses.engines.base import is_shared

if TYPE_CHECKING:
    from pirl_plugin.losses.engines.base import ContrastBatch
    from pirl_plugin.losses.estimators.base import Estimator, NormConstant

_MOST_BYTES = 2**26  # 64 MB


class PlainEngine:
    """All scores ``(T, B, N)``, the estimator's equation on them, and autograd."""

    def __init__(self, batch: ContrastBatch) -> None:
        draw = batch.draw
        self.positive, self.negatives = bank_scores(
            batch.queries,
            batch.positives,
            batch.table,
            draw if isinstance(draw, Tensor) else draw.all(),
            batch.temperature,
        )  # (T, B), (T, B, N)

    def log_sums(self) -> Tensor:
        """See :meth:`pirl_plugin.losses.engines.base.Engine.log_sums`."""
        return self.negatives.detach().logsumexp(dim=2)

    def loss(self, estimator: Estimator, constant: NormConstant) -> Tensor:
        """See :meth:`pirl_plugin.losses.engines.base.Engine.loss`."""
        terms = zip(self.positive, self.negatives, strict=True)
        return torch.stack([estimator.from_scores(*scores, constant) for scores in terms])


def bank_scores(
    queries: Tensor, positives: Tensor, table: Tensor, negatives: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    """Compute cosine similarity over τ, of each query with its positive and the drawn rows.

    Args:
        queries: ``(T, B, D)`` unit-norm embeddings of the loss's T terms, float32 or float64.
        positives: ``(B, D)``, each image's own row.
        table: ``(rows, D)`` unit-norm rows, any floating type.
        negatives: ``(B, N)`` int64, the drawn rows of the table.
        temperature: τ > 0.

    Returns:
        ``(T, B)`` and ``(T, B, N)``, in the queries' type.
    """
    positive = torch.einsum("tbd,bd->tb", queries, positives.to(queries.dtype))
    batch, count = negatives.shape
    if is_shared(negatives) or batch == 1:  # one draw for the batch
        scores = queries @ table[negatives[0]].to(queries.dtype).T
    elif prefers_whole_table(queries.shape[0], batch, len(table), count):
        everything = queries @ table.to(queries.dtype).T
        scores = everything.gather(2, negatives.expand(queries.shape[0], -1, -1))
    else:
        drawn = table[negatives].to(queries.dtype)  # (B, N, D), read once for all terms
        scores = torch.bmm(drawn, queries.permute(1, 2, 0)).permute(2, 0, 1)
    return positive / temperature, scores / temperature


def prefers_whole_table(terms: int, batch: int, num_rows: int, num_negatives: int) -> bool:
    """Whether scoring the whole table and picking the drawn scores beats gathering the rows.

    A product with a row takes a CPU about a fifth of the time of fetching it by itself; all scores
    of the table, those that are picked, and both gradients are in memory at once.
    """
    bytes_at_once = 2 * 4 * terms * batch * (num_rows + num_negatives)
    return num_rows <= 5 * num_negatives and bytes_at_once <= _MOST_BYTES
