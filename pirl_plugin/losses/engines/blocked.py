"""Sums over the drawn rows, block by block, on any device.

Scores and gradient come from one reading of the rows; nothing of size B × N × D exists at any time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import softplus

from pirl_plugin.losses.engines.base import num_drawn
from pirl_plugin.losses.engines.softmax import Softmax, join

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pirl_plugin.memory import Draw

_BLOCK = 8192  # rows gathered at a time: 4 MB for 128 floats, which caches hold


class BlockedSums:
    """See :class:`pirl_plugin.losses.engines.sums.DrawnSums`; sums are in the queries' type."""

    def __init__(self, queries: Tensor, table: Tensor, draw: Draw | Tensor) -> None:
        self.queries, self.table, self.draw = queries, table, draw
        self.num_negatives = num_drawn(draw)

    def sigmoid(self, shift: Tensor) -> tuple[Tensor, Tensor]:
        """See :meth:`pirl_plugin.losses.engines.sums.DrawnSums.sigmoid`."""
        values, weighted = self._zeros(), torch.zeros_like(self.queries)
        for image, _, rows, scores in self._blocks():
            scores -= shift
            values[:, image] += softplus(scores).sum(dim=1)
            weighted[:, image].addmm_(scores.sigmoid_(), rows)
        return values, weighted

    def softmax(self) -> Softmax:
        """See :meth:`pirl_plugin.losses.engines.sums.DrawnSums.softmax`."""
        terms, batch, _ = self.queries.shape
        parts = []
        for _, start, rows, scores in self._blocks():
            top, index = scores.max(dim=1)
            others = scores.scatter(1, index[:, None], -torch.inf)
            second = others.amax(dim=1)
            weights = torch.exp(others - second.nan_to_num(neginf=0)[:, None])
            rest = weights.sum(dim=1)
            parts.append((top, start + index, rows[index], second, rest, weights @ rows))
        # Blocks come image by image: (B · blocks, T, …) → (blocks, T, B, …)
        stacked = (torch.stack(part) for part in zip(*parts, strict=True))
        views = [s.view(batch, -1, terms, *s.shape[2:]).movedim(0, 2) for s in stacked]
        return join(Softmax(*views))

    def odds(self, log_total: Tensor, left_out: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """See :meth:`pirl_plugin.losses.engines.sums.DrawnSums.odds`."""
        values, weighted = self._zeros(), torch.zeros_like(self.queries)
        odds_sum = torch.zeros_like(values)
        for image, start, rows, scores in self._blocks():
            h = torch.exp(scores - log_total[:, image, None])
            numbers = torch.arange(start, start + len(rows), device=rows.device)
            h.masked_fill_(numbers == left_out[:, image, None], 0)
            values[:, image] -= torch.log1p(-h).sum(dim=1)
            odds = h / (1 - h)
            odds_sum[:, image] += odds.sum(dim=1)
            weighted[:, image].addmm_(odds, rows)
        return values, odds_sum, weighted

    def _zeros(self) -> Tensor:
        """``(T, B)``."""
        return self.queries.new_zeros(self.queries.shape[:2])

    def _blocks(self) -> Iterator[tuple[int, int, Tensor, Tensor]]:
        """Yield each image's drawn rows in turn: image, first of the block, rows, scores (T, n)."""
        queries, table, draw = self.queries, self.table, self.draw
        buffer = table.new_empty(min(_BLOCK, self.num_negatives), table.shape[1])
        for image in range(queries.shape[1]):
            drawn = draw[image] if isinstance(draw, Tensor) else draw.of(image)
            for start in range(0, len(drawn), _BLOCK):
                block = drawn[start : start + _BLOCK]
                rows = torch.index_select(table, 0, block, out=buffer[: len(block)])
                rows = rows.to(queries.dtype)
                yield image, start, rows, queries[:, image] @ rows.T
