"""Sums over the drawn rows, block by block, on any device.

Scores and gradient come from one reading of the rows; nothing of size B × N × D exists at any time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import softplus

from pirl_plugin.losses.engines.base import num_drawn
from pirl_plugin.losses.engines.gather import gather_rows
from pirl_plugin.losses.engines.softmax import Softmax, join

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pirl_plugin.losses.engines.sums import DrawnSums
    from pirl_plugin.memory import Draw

_BLOCK = 8192  # rows gathered at a time: 4 MB for 128 floats, which caches hold


class BlockedSums:
    """See :class:`pirl_plugin.losses.engines.sums.DrawnSums`; sums are in the queries' type."""

    def __init__(self, queries: Tensor, table: Tensor, draw: Draw | Tensor) -> None:
        self.queries, self.table, self.draw = queries, table.contiguous(), draw
        self.num_negatives = num_drawn(draw)

    def parts(self, with_odds: bool) -> Iterator[tuple[slice, DrawnSums]]:
        """See :meth:`pirl_plugin.losses.engines.sums.DrawnSums.parts`."""
        if not with_odds:
            yield slice(None), self
            return
        for image in range(self.queries.shape[1]):
            draw = self.draw[image] if isinstance(self.draw, Tensor) else self.draw.of(image)
            mine = slice(image, image + 1)
            yield mine, ImageSums(self.queries[:, mine], self.table, draw[None])

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
        parts = [
            softmax_of_block(start, rows, scores)[0] for _, start, rows, scores in self._blocks()
        ]
        # Blocks come image by image: (B · blocks, T, …) → (blocks, T, B, …)
        stacked = (torch.stack(part) for part in zip(*parts, strict=True))
        views = [s.view(batch, -1, terms, *s.shape[2:]).movedim(0, 2) for s in stacked]
        return join(Softmax(*views))

    def odds(self, log_total: Tensor, left_out: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Refuse: :class:`ImageSums` has them.

        Raises:
            TypeError: always.
        """
        raise TypeError("an estimator that asks for odds: expected uses_odds = True; set it")

    def _zeros(self) -> Tensor:
        """``(T, B)``."""
        return self.queries.new_zeros(self.queries.shape[:2])

    def _blocks(self) -> Iterator[tuple[int, int, Tensor, Tensor]]:
        """Yield each image's drawn rows in turn: image, first of the block, rows, scores (T, n)."""
        buffer = self.table.new_empty(min(_BLOCK, self.num_negatives), self.table.shape[1])
        for image in range(self.queries.shape[1]):
            drawn = self.draw[image] if isinstance(self.draw, Tensor) else self.draw.of(image)
            for start in range(0, len(drawn), _BLOCK):
                block = drawn[start : start + _BLOCK]
                rows = self._gather(block, buffer[: len(block)])
                yield image, start, rows, self.queries[:, image] @ rows.T

    def _gather(self, block: Tensor, buffer: Tensor) -> Tensor:
        """Rows ``(n, D)`` in the queries' type."""
        if self.table.device.type == "cpu":
            gather_rows(self.table, block, buffer)
        else:
            torch.index_select(self.table, 0, block, out=buffer)
        return buffer.to(self.queries.dtype)


class ImageSums(BlockedSums):
    """The sums of one image of a batch, which read its rows once for softmax and odds.

    With o = h/(1 − h) = h + h² + h³/(1 − h), the first reading sums h·m and h²·m, up to factors,
    and keeps the scores, ``(T, N)``. The last summand is below o's rounding error but for few rows:
    these, at most 1 / :attr:`_small` of them a term, are read again.
    """

    def softmax(self) -> Softmax:
        """See :meth:`pirl_plugin.losses.engines.sums.DrawnSums.softmax`."""
        parts, squares, scores = [], [], []
        for _, start, rows, block_scores in self._blocks():
            part, weights = softmax_of_block(start, rows, block_scores)
            parts.append(part)
            squares.append(weights.square_() @ rows)
            scores.append(block_scores)
        self._parts = Softmax(*(torch.stack(part) for part in zip(*parts, strict=True)))
        self._squares = torch.stack(squares)  # (blocks, T, D)
        self._scores = torch.cat(scores, dim=1)  # (T, N)
        return join(Softmax(*(part[:, :, None] for part in self._parts)))

    def odds(self, log_total: Tensor, left_out: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """See :meth:`pirl_plugin.losses.engines.sums.DrawnSums.odds`; after :meth:`softmax`."""
        h = torch.exp(self._scores - log_total).scatter_(1, left_out, 0)  # (T, N)
        odds = h / (1 - h)
        # Σ (h + h²)·m: the tops of blocks apart, as Softmax keeps them
        parts, tops = self._parts, torch.exp(self._parts.top - log_total[:, 0])
        tops = tops.masked_fill(parts.top_index == left_out[:, 0], 0)  # (blocks, T)
        others = torch.exp(parts.second - log_total[:, 0])
        weighted = torch.einsum("st,std->td", others, parts.rest_sum)
        weighted += torch.einsum("st,std->td", others.square(), self._squares)
        weighted += torch.einsum("st,std->td", tops + tops.square(), parts.top_row)
        # Σ h³/(1 − h)·m
        for term, few in enumerate(h > self._small):
            number = few.nonzero()[:, 0]
            weighted[term] += (h[term, number].square() * odds[term, number]) @ self._again(number)
        value = -torch.log1p(-h).sum(dim=1)
        return value[:, None], odds.sum(dim=1)[:, None], weighted[:, None]

    def _again(self, number: Tensor) -> Tensor:
        """Rows ``(n, D)`` of some of the N."""
        rows: Tensor = self.table[self.draw[0, number]]  # type: ignore[index]
        return rows.to(self.queries.dtype)

    @property
    def _small(self) -> float:
        """An h whose square is lost when it is added to 1."""
        return torch.finfo(self.queries.dtype).eps ** 0.5


def softmax_of_block(start: int, rows: Tensor, scores: Tensor) -> tuple[Softmax, Tensor]:
    """Softmax statistics of one block of an image's rows.

    Args:
        start: number of its first row.
        rows: ``(n, D)``.
        scores: ``(T, n)``.

    Returns:
        The statistics, whose tensors lack the dimension of images, and the weights ``(T, n)``,
        exp(s − second), 0 for the largest.
    """
    top, index = scores.max(dim=1)
    others = scores.scatter(1, index[:, None], -torch.inf)
    second = others.amax(dim=1)
    weights = torch.exp(others - second.nan_to_num(neginf=0)[:, None])
    rest = weights.sum(dim=1)
    return Softmax(top, start + index, rows[index], second, rest, weights @ rows), weights
