"""Sums over the drawn rows on a GPU: each row read once for two terms, value and gradient.

The draw is made first, by a kernel of its own (Philox, as :mod:`pirl_plugin.memory.philox` does): 4
bytes for each row that is read, and no lane computes what another does. A program of the others
takes a part of one image's negatives and two terms, a tile of rows at a time: it gathers the rows
and adds to sums that stay in registers. A row lies in eight lanes of one warp, so that a tile needs
shuffles and no barrier. The sums of all programs, megabytes whatever N is, are joined with tensors.

Rows are float32, bfloat16 or float16; all arithmetic is float32. ``TRITON_INTERPRET=1`` runs it on
a CPU, for tests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

from pirl_plugin.losses.engines.base import num_drawn
from pirl_plugin.losses.engines.softmax import Softmax, join
from pirl_plugin.losses.engines.triton_draw import make_draw
from pirl_plugin.losses.engines.triton_tiles import (
    add_odds,
    add_sigmoids,
    add_softmax,
    load_query,
    load_rows,
    store,
    store_row,
    store_softmax,
)
from pirl_plugin.memory.negatives import Draw

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pirl_plugin.losses.engines.sums import DrawnSums

_CHUNK = 128  # bytes of a row that its lanes read at once: a line of the cache
_TILE = 2048  # rows × dimensions of a program's tile: 16 registers a thread
_PROGRAMS = 4096  # enough of them to keep all of a GPU's memory channels busy


@triton.jit
def _sigmoid_kernel(
    queries, table, draw, shift, values, weighted,
    T, B, D, count, share,
    EXACT: tl.constexpr, CHUNKS: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    image, split, first = tl.program_id(0), tl.program_id(1), 2 * tl.program_id(2)
    second = first + 1
    query_1 = load_query(queries, first, image, T, B, D, CHUNKS, LANES)
    query_2 = load_query(queries, second, image, T, B, D, CHUNKS, LANES)
    c = tl.load(shift)
    value_1 = tl.zeros((ROWS,), tl.float32)
    value_2 = tl.zeros((ROWS,), tl.float32)
    total_1 = tl.zeros((CHUNKS, ROWS, LANES), tl.float32)
    total_2 = tl.zeros((CHUNKS, ROWS, LANES), tl.float32)
    begin = split * share
    stop = tl.minimum(begin + share, count)
    end = begin + (stop - begin) // ROWS * ROWS  # of the full tiles; one may follow that is not
    for rest in tl.static_range(2):
        low = begin if rest == 0 else end
        high = end if rest == 0 else stop
        for start in range(low, high, ROWS):
            n = start + tl.arange(0, ROWS)
            is_real = n < stop
            rows = load_rows(
                table, draw, image, n, is_real, D, count, rest == 0, EXACT, CHUNKS, LANES
            )
            value_1, total_1 = add_sigmoids(rows, is_real, query_1, c, value_1, total_1, rest == 0)
            value_2, total_2 = add_sigmoids(rows, is_real, query_2, c, value_2, total_2, rest == 0)
    store(values, tl.sum(value_1, axis=0), split, first, image, T, B)
    store(values, tl.sum(value_2, axis=0), split, second, image, T, B)
    store_row(weighted, total_1, split, first, image, T, B, D, CHUNKS, LANES)
    store_row(weighted, total_2, split, second, image, T, B, D, CHUNKS, LANES)


@triton.jit
def _softmax_kernel(
    queries, table, draw,
    tops, indices_of_tops, top_rows, seconds, rests, rest_sums,
    T, B, D, count, share,
    EXACT: tl.constexpr, CHUNKS: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    image, split, first = tl.program_id(0), tl.program_id(1), 2 * tl.program_id(2)
    second = first + 1
    query_1 = load_query(queries, first, image, T, B, D, CHUNKS, LANES)
    query_2 = load_query(queries, second, image, T, B, D, CHUNKS, LANES)
    top_1 = tl.full((ROWS,), -float("inf"), tl.float32)
    index_1 = tl.zeros((ROWS,), tl.int32)
    row_1 = tl.zeros((CHUNKS, ROWS, LANES), tl.float32)
    second_1 = tl.full((ROWS,), -float("inf"), tl.float32)
    rest_1 = tl.zeros((ROWS,), tl.float32)
    sum_1 = tl.zeros((CHUNKS, ROWS, LANES), tl.float32)
    top_2, index_2, row_2, second_2, rest_2, sum_2 = top_1, index_1, row_1, second_1, rest_1, sum_1
    begin = split * share
    stop = tl.minimum(begin + share, count)
    end = begin + (stop - begin) // ROWS * ROWS  # of the full tiles; one may follow that is not
    for rest in tl.static_range(2):
        low = begin if rest == 0 else end
        high = end if rest == 0 else stop
        for start in range(low, high, ROWS):
            n = start + tl.arange(0, ROWS)
            is_real = n < stop
            rows = load_rows(
                table, draw, image, n, is_real, D, count, rest == 0, EXACT, CHUNKS, LANES
            )
            top_1, index_1, row_1, second_1, rest_1, sum_1 = add_softmax(
                rows, n, is_real, query_1, top_1, index_1, row_1, second_1, rest_1, sum_1, rest == 0
            )
            top_2, index_2, row_2, second_2, rest_2, sum_2 = add_softmax(
                rows, n, is_real, query_2, top_2, index_2, row_2, second_2, rest_2, sum_2, rest == 0
            )
    store_softmax(
        tops, indices_of_tops, top_rows, seconds, rests, rest_sums,
        top_1, index_1, row_1, second_1, rest_1, sum_1,
        split, first, image, T, B, D, ROWS, CHUNKS, LANES,
    )  # fmt: skip
    store_softmax(
        tops, indices_of_tops, top_rows, seconds, rests, rest_sums,
        top_2, index_2, row_2, second_2, rest_2, sum_2,
        split, second, image, T, B, D, ROWS, CHUNKS, LANES,
    )  # fmt: skip


@triton.jit
def _odds_kernel(
    queries, table, draw, totals, left_out,
    values, odds_sums, weighted,
    T, B, D, count, share,
    EXACT: tl.constexpr, CHUNKS: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    image, split, first = tl.program_id(0), tl.program_id(1), 2 * tl.program_id(2)
    second = first + 1
    query_1 = load_query(queries, first, image, T, B, D, CHUNKS, LANES)
    query_2 = load_query(queries, second, image, T, B, D, CHUNKS, LANES)
    # A term that is not there has scores of 0: any finite denominator above 2 does.
    total_1 = tl.load(totals + first * B + image)
    total_2 = tl.load(totals + second * B + image, mask=second < T, other=1.0)
    out_1 = tl.load(left_out + first * B + image)
    out_2 = tl.load(left_out + second * B + image, mask=second < T, other=0)
    value_1 = tl.zeros((ROWS,), tl.float32)
    odds_1 = tl.zeros((ROWS,), tl.float32)
    sum_1 = tl.zeros((CHUNKS, ROWS, LANES), tl.float32)
    value_2, odds_2, sum_2 = value_1, odds_1, sum_1
    begin = split * share
    stop = tl.minimum(begin + share, count)
    end = begin + (stop - begin) // ROWS * ROWS  # of the full tiles; one may follow that is not
    for rest in tl.static_range(2):
        low = begin if rest == 0 else end
        high = end if rest == 0 else stop
        for start in range(low, high, ROWS):
            n = start + tl.arange(0, ROWS)
            is_real = n < stop
            rows = load_rows(
                table, draw, image, n, is_real, D, count, rest == 0, EXACT, CHUNKS, LANES
            )
            value_1, odds_1, sum_1 = add_odds(
                rows, n, is_real, query_1, total_1, out_1, value_1, odds_1, sum_1, rest == 0
            )
            value_2, odds_2, sum_2 = add_odds(
                rows, n, is_real, query_2, total_2, out_2, value_2, odds_2, sum_2, rest == 0
            )
    store(values, tl.sum(value_1, axis=0), split, first, image, T, B)
    store(values, tl.sum(value_2, axis=0), split, second, image, T, B)
    store(odds_sums, tl.sum(odds_1, axis=0), split, first, image, T, B)
    store(odds_sums, tl.sum(odds_2, axis=0), split, second, image, T, B)
    store_row(weighted, sum_1, split, first, image, T, B, D, CHUNKS, LANES)
    store_row(weighted, sum_2, split, second, image, T, B, D, CHUNKS, LANES)


class TritonSums:
    """See :class:`pirl_plugin.losses.engines.sums.DrawnSums`; needs float32 queries.

    The negatives of an image are split among programs; their sums are joined with tensors.
    """

    def __init__(self, queries: Tensor, table: Tensor, draw: Draw | Tensor) -> None:
        _, batch, dim = queries.shape
        self.queries, self.table = queries.contiguous(), table.contiguous()
        self.draw = draw.contiguous() if isinstance(draw, Tensor) else make_draw(draw)
        self.num_negatives = num_drawn(draw)
        width = triton.next_power_of_2(dim)
        lanes = min(width, _CHUNK // table.element_size())
        rows = max(1, _TILE // width)
        splits = max(1, min(_PROGRAMS // batch, triton.cdiv(self.num_negatives, 4 * rows)))
        self._share = triton.cdiv(triton.cdiv(self.num_negatives, splits), rows) * rows
        self._splits = triton.cdiv(self.num_negatives, self._share)
        self._sizes = {"ROWS": rows, "CHUNKS": width // lanes, "LANES": lanes}

    def parts(self, with_odds: bool) -> Iterator[tuple[slice, DrawnSums]]:
        """See :meth:`pirl_plugin.losses.engines.sums.DrawnSums.parts`: all images at once."""
        yield slice(None), self

    def sigmoid(self, shift: Tensor) -> tuple[Tensor, Tensor]:
        """See :meth:`pirl_plugin.losses.engines.sums.DrawnSums.sigmoid`."""
        values, weighted = self._empty(), self._empty(wide=True)
        self._run(_sigmoid_kernel, shift.to(self.queries), values, weighted)
        return values.sum(dim=0), weighted.sum(dim=0)

    def softmax(self) -> Softmax:
        """See :meth:`pirl_plugin.losses.engines.sums.DrawnSums.softmax`."""
        tops, seconds, rests = (self._empty() for _ in range(3))
        indices = self._empty(torch.int32)
        top_rows, rest_sums = self._empty(wide=True), self._empty(wide=True)
        self._run(_softmax_kernel, tops, indices, top_rows, seconds, rests, rest_sums)
        return join(Softmax(tops, indices.long(), top_rows, seconds, rests, rest_sums))

    def odds(self, log_total: Tensor, left_out: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """See :meth:`pirl_plugin.losses.engines.sums.DrawnSums.odds`."""
        values, odds, weighted = self._empty(), self._empty(), self._empty(wide=True)
        skipped = left_out.to(torch.int32).contiguous()
        self._run(_odds_kernel, log_total.contiguous(), skipped, values, odds, weighted)
        return values.sum(dim=0), odds.sum(dim=0), weighted.sum(dim=0)

    def _empty(self, dtype: torch.dtype = torch.float32, wide: bool = False) -> Tensor:
        """One part for each split: ``(splits, T, B)``, with ``wide`` also ``D``."""
        shape = self.queries.shape if wide else self.queries.shape[:2]
        return torch.empty(self._splits, *shape, dtype=dtype, device=self.queries.device)

    def _run(self, kernel: triton.JITFunction, *arguments: Tensor) -> None:
        """Launch a program of a kernel for each image, split and pair of terms."""
        terms, batch, dim = self.queries.shape
        exact = dim == self._sizes["CHUNKS"] * self._sizes["LANES"]
        with torch.cuda.device_of(self.queries):  # else Triton launches on the current GPU
            kernel[(batch, self._splits, triton.cdiv(terms, 2))](
                self.queries, self.table, self.draw, *arguments,
                terms, batch, dim, self.num_negatives, self._share, EXACT=exact, **self._sizes,
            )  # fmt: skip
