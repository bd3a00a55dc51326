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
    from collections.abc import Iterable, Iterator, Sequence

    from pirl_plugin.losses.engines.sums import DrawnSums
    from pirl_plugin.memory import Draw

_SCORES = 2**16  # scores kept at a time, of several images where they are few: 256 KB
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
        terms, batch, _ = self.queries.shape
        size = max(1, _SCORES // (terms * self.num_negatives))
        for images in (slice(first, first + size) for first in range(0, batch, size)):
            draws = (self._drawn(image) for image in range(batch)[images])
            yield images, KeptSums(self.queries[:, images], self.table, torch.stack([*draws]))

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
        parts = (softmax_of_block(start, *found)[0] for _, start, *found in self._blocks())
        return join(Softmax(*self._by_image(parts)))

    def odds(self, log_total: Tensor, left_out: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Refuse: :class:`KeptSums` has them.

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
            drawn = self._drawn(image)
            for start in range(0, len(drawn), _BLOCK):
                block = drawn[start : start + _BLOCK]
                rows = self._gather(block, buffer[: len(block)])
                yield image, start, rows, self.queries[:, image] @ rows.T

    def _drawn(self, image: int) -> Tensor:
        """``(N,)`` int64, the draw of one image."""
        return self.draw[image] if isinstance(self.draw, Tensor) else self.draw.of(image)

    def _by_image(self, parts: Iterable[Sequence[Tensor]]) -> Iterator[Tensor]:
        """Stack what each block has, ``(T, …)``, as they come: → ``(blocks, T, B, …)``."""
        terms, batch, _ = self.queries.shape
        for part in zip(*parts, strict=True):
            stacked = torch.stack(part)  # (B · blocks, T, …), image by image
            yield stacked.view(batch, -1, terms, *stacked.shape[2:]).movedim(0, 2)

    def _gather(self, block: Tensor, buffer: Tensor) -> Tensor:
        """Rows ``(n, D)`` in the queries' type."""
        if self.table.device.type == "cpu":
            gather_rows(self.table, block, buffer)
        else:
            torch.index_select(self.table, 0, block, out=buffer)
        return buffer.to(self.queries.dtype)


class KeptSums(BlockedSums):
    """Sums that read the rows once for softmax and odds, of as many images as scores are kept for.

    With o = h/(1 − h) = h + h² + h³/(1 − h), the first reading sums h·m and h²·m, up to factors,
    and keeps the scores, ``(T, B, N)``. The last summand is below o's rounding error but for few
    rows: these, at most 1 / :attr:`_small` a term and image, are read again.
    """

    def softmax(self) -> Softmax:
        """See :meth:`pirl_plugin.losses.engines.sums.DrawnSums.softmax`."""
        terms, batch, _ = self.queries.shape
        self._scores = self.queries.new_empty(terms, batch, self.num_negatives)
        found = []
        for image, start, rows, scores in self._blocks():
            self._scores[:, image, start : start + len(rows)] = scores
            part, weights = softmax_of_block(start, rows, scores)
            found.append((*part, weights.square_() @ rows))
        *parts, self._squares = self._by_image(found)  # squares: (blocks, T, B, D)
        self._parts = Softmax(*parts)
        return join(self._parts)

    def odds(self, log_total: Tensor, left_out: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """See :meth:`pirl_plugin.losses.engines.sums.DrawnSums.odds`; after :meth:`softmax`."""
        h = torch.exp(self._scores - log_total[..., None])
        h.scatter_(2, left_out[..., None], 0)  # (T, B, N)
        odds = h / (1 - h)
        # Σ (h + h²)·m: the tops of blocks apart, as Softmax keeps them
        parts, tops = self._parts, torch.exp(self._parts.top - log_total)
        tops = tops.masked_fill(parts.top_index == left_out, 0)  # (blocks, T, B)
        others = torch.exp(parts.second - log_total)
        weighted = torch.einsum("stb,stbd->tbd", others, parts.rest_sum)
        weighted += torch.einsum("stb,stbd->tbd", others.square(), self._squares)
        weighted += torch.einsum("stb,stbd->tbd", tops + tops.square(), parts.top_row)
        # Σ h³/(1 − h)·m
        for image in range(h.shape[1]):
            few = (h[:, image] > self._small).any(dim=0).nonzero()[:, 0]
            rows = self._again(self.draw[image, few])  # type: ignore[index]
            weighted[:, image] += (h[:, image, few].square() * odds[:, image, few]) @ rows
        return -torch.log1p(-h).sum(dim=2), odds.sum(dim=2), weighted

    def _again(self, drawn: Tensor) -> Tensor:
        """Rows ``(n, D)`` of the table, in the queries' type."""
        return self.table[drawn].to(self.queries.dtype)

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
