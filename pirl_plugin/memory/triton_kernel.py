"""Sums over the drawn rows on a GPU: each row read once, for all terms, value and gradient.

The same three functions as :mod:`pirl_plugin.memory.blocked`, whose docstring says what is what. A
program takes some of one data point's negatives and two terms, a tile of rows at a time: it looks
the draw up, or makes it (Philox, as :mod:`pirl_plugin.memory.philox` does), gathers the rows, and
adds to sums that stay in registers. A row lies across the lanes of one warp, so that a tile needs
shuffles and no barrier. The sums of all programs, megabytes whatever N is, are joined with tensors.

Rows are float32, bfloat16 or float16; all arithmetic is float32. ``TRITON_INTERPRET=1`` runs it on
a CPU, for tests.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from pirl_plugin.memory.negatives import Draw
from pirl_plugin.memory.softmax import Softmax, join

_TILE = 2048  # rows × dimensions of a program's tile: 16 registers a thread
_PROGRAMS = 4096  # enough of them to keep all of a GPU's memory channels busy


@triton.jit
def _log1p(y):  # type: ignore[no-untyped-def]
    """log(1 + y) for y in [−1/2, 1], to float32's precision also near 0: 2·atanh(y / (2 + y))."""
    z = y / (2.0 + y)
    w = z * z
    series = 1 / 13 + w * (1 / 15)
    series = 1 / 9 + w * (1 / 11 + w * series)
    series = 1 / 5 + w * (1 / 7 + w * series)
    return 2.0 * z * (1.0 + w * (1 / 3 + w * series))


@triton.jit
def _ratio(lower, higher):  # type: ignore[no-untyped-def]
    """exp(lower − higher), 0 where ``lower`` is −inf, also beside −inf."""
    return tl.exp(lower - tl.where(higher == -float("inf"), 0.0, higher))


@triton.jit
def _drawn(point, n, is_real, given, keys, exclude, bound, seed, step, count, GIVEN: tl.constexpr):  # type: ignore[no-untyped-def]
    """Rows of the table that are number ``n`` of a data point's negatives."""
    if GIVEN:
        return tl.load(given + point.to(tl.int64) * count + n, mask=is_real, other=0)
    key = tl.load(keys + point)
    own = tl.load(exclude + point)
    zero = n * 0
    step = step.to(tl.int64)
    step_low, step_high = (step & 0xFFFFFFFF).to(tl.int32), (step >> 32).to(tl.int32)
    a, b, c, d = tl.philox(
        seed.to(tl.int64), n // 2, zero + key.to(tl.int32), zero + step_low, zero + step_high, 10
    )
    first = n % 2 == 0
    high = tl.where(first, a, c).to(tl.uint64)
    low = tl.where(first, b, d).to(tl.uint64)
    below = (bound.to(tl.int64) - (own >= 0).to(tl.int64)).to(tl.uint64)
    drawn = ((high * below + ((low * below) >> 32)) >> 32).to(tl.int64)
    return drawn + ((drawn >= own) & (own >= 0)).to(tl.int64)  # step over the own row


@triton.jit
def _load_query(queries, term, point, T, B, D, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    d = tl.arange(0, WIDTH)
    at = (term.to(tl.int64) * B + point) * D + d
    return tl.load(queries + at, mask=d < tl.where(term < T, D, 0), other=0.0)


@triton.jit
def _load_rows(table, places, is_real, D, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    d = tl.arange(0, WIDTH)
    inside = is_real[:, None] & (d[None, :] < D)
    return tl.load(table + places[:, None] * D + d[None, :], mask=inside, other=0.0).to(tl.float32)


@triton.jit
def _store(sums, value, split, term, point, T, B):  # type: ignore[no-untyped-def]
    """To ``sums[split, term, point]``."""
    tl.store(sums + (split * T + term) * B + point, value, mask=term < T)


@triton.jit
def _store_row(sums, value, split, term, point, T, B, D, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """To ``sums[split, term, point, :]``."""
    d = tl.arange(0, WIDTH)
    at = ((split * T + term) * B + point) * D + d
    tl.store(sums + at, value, mask=d < tl.where(term < T, D, 0))


@triton.jit
def _add_sigmoids(rows, is_real, query, shift, value, total):  # type: ignore[no-untyped-def]
    """One term of a tile of rows (ROWS, WIDTH): adds to (ROWS,) and (ROWS, WIDTH)."""
    x = tl.sum(rows * query[None, :], axis=1) - shift
    small = tl.exp(-tl.abs(x))
    sigmoid = tl.where(x >= 0, 1.0, small) / (1.0 + small)
    softplus = tl.maximum(x, 0.0) + _log1p(small)
    value += tl.where(is_real, softplus, 0.0)
    total += tl.where(is_real, sigmoid, 0.0)[:, None] * rows
    return value, total


@triton.jit(do_not_specialize=["bound", "seed", "step"])
def _sigmoid_kernel(  # type: ignore[no-untyped-def]
    queries, table, given, keys, exclude, bound, seed, step, shift, values, weighted,
    T, B, D, count, share, GIVEN: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    point, split, first = tl.program_id(0), tl.program_id(1), 2 * tl.program_id(2)
    second = first + 1
    query_1 = _load_query(queries, first, point, T, B, D, WIDTH)
    query_2 = _load_query(queries, second, point, T, B, D, WIDTH)
    c = tl.load(shift)
    value_1 = tl.zeros((ROWS,), tl.float32)
    value_2 = tl.zeros((ROWS,), tl.float32)
    total_1 = tl.zeros((ROWS, WIDTH), tl.float32)
    total_2 = tl.zeros((ROWS, WIDTH), tl.float32)
    stop = tl.minimum(split * share + share, count)
    for start in range(split * share, stop, ROWS):
        n = start + tl.arange(0, ROWS)
        is_real = n < stop
        places = _drawn(point, n, is_real, given, keys, exclude, bound, seed, step, count, GIVEN)
        rows = _load_rows(table, places, is_real, D, WIDTH)
        value_1, total_1 = _add_sigmoids(rows, is_real, query_1, c, value_1, total_1)
        value_2, total_2 = _add_sigmoids(rows, is_real, query_2, c, value_2, total_2)
    _store(values, tl.sum(value_1, axis=0), split, first, point, T, B)
    _store(values, tl.sum(value_2, axis=0), split, second, point, T, B)
    _store_row(weighted, tl.sum(total_1, axis=0), split, first, point, T, B, D, WIDTH)
    _store_row(weighted, tl.sum(total_2, axis=0), split, second, point, T, B, D, WIDTH)


@triton.jit
def _add_softmax(rows, n, is_real, query, top, place, top_row, rest, rest_sum):  # type: ignore[no-untyped-def]
    """One term of a tile: each of its places keeps statistics of its own, of the rows it saw."""
    s = tl.sum(rows * query[None, :], axis=1)
    s = tl.where(is_real, s, -float("inf"))
    # The lower of the top and the new score is one of the rest from now on.
    wins = s > top
    lower, higher = tl.minimum(s, top), tl.maximum(s, top)
    lower_scale, scale = _ratio(lower, higher), _ratio(top, higher)
    lower_row = tl.where(wins[:, None], top_row, rows)
    rest = rest * scale + lower_scale
    rest_sum = rest_sum * scale[:, None] + lower_row * lower_scale[:, None]
    top_row = tl.where(wins[:, None], rows, top_row)
    return higher, tl.where(wins, n, place), top_row, rest, rest_sum


@triton.jit
def _store_softmax(  # type: ignore[no-untyped-def]
    tops, at, top_rows, rests, rest_sums, top, place, top_row, rest, rest_sum,
    split, term, point, T, B, D, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Join the statistics of a tile's places, as :func:`pirl_plugin.memory.softmax.join` does."""
    highest = tl.max(top, axis=0)
    is_highest = tl.arange(0, ROWS) == tl.argmax(top, axis=0)
    scale = _ratio(top, highest)
    beaten = tl.where(is_highest, 0.0, scale)
    rest_sum = rest_sum * scale[:, None] + top_row * beaten[:, None]
    top_row = tl.where(is_highest[:, None], top_row, 0.0)
    place = tl.where(is_highest, place, 0)
    _store(tops, highest, split, term, point, T, B)
    _store(at, tl.sum(place, axis=0), split, term, point, T, B)
    _store(rests, tl.sum(rest * scale + beaten, axis=0), split, term, point, T, B)
    _store_row(top_rows, tl.sum(top_row, axis=0), split, term, point, T, B, D, WIDTH)
    _store_row(rest_sums, tl.sum(rest_sum, axis=0), split, term, point, T, B, D, WIDTH)


@triton.jit(do_not_specialize=["bound", "seed", "step"])
def _softmax_kernel(  # type: ignore[no-untyped-def]
    queries, table, given, keys, exclude, bound, seed, step, tops, at, top_rows, rests, rest_sums,
    T, B, D, count, share, GIVEN: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    point, split, first = tl.program_id(0), tl.program_id(1), 2 * tl.program_id(2)
    second = first + 1
    query_1 = _load_query(queries, first, point, T, B, D, WIDTH)
    query_2 = _load_query(queries, second, point, T, B, D, WIDTH)
    top_1 = tl.full((ROWS,), -float("inf"), tl.float32)
    place_1 = tl.zeros((ROWS,), tl.int32)
    row_1 = tl.zeros((ROWS, WIDTH), tl.float32)
    rest_1 = tl.zeros((ROWS,), tl.float32)
    sum_1 = tl.zeros((ROWS, WIDTH), tl.float32)
    top_2, place_2, row_2, rest_2, sum_2 = top_1, place_1, row_1, rest_1, sum_1
    stop = tl.minimum(split * share + share, count)
    for start in range(split * share, stop, ROWS):
        n = start + tl.arange(0, ROWS)
        is_real = n < stop
        places = _drawn(point, n, is_real, given, keys, exclude, bound, seed, step, count, GIVEN)
        rows = _load_rows(table, places, is_real, D, WIDTH)
        top_1, place_1, row_1, rest_1, sum_1 = _add_softmax(
            rows, n, is_real, query_1, top_1, place_1, row_1, rest_1, sum_1
        )
        top_2, place_2, row_2, rest_2, sum_2 = _add_softmax(
            rows, n, is_real, query_2, top_2, place_2, row_2, rest_2, sum_2
        )
    _store_softmax(
        tops, at, top_rows, rests, rest_sums, top_1, place_1, row_1, rest_1, sum_1,
        split, first, point, T, B, D, ROWS, WIDTH,
    )  # fmt: skip
    _store_softmax(
        tops, at, top_rows, rests, rest_sums, top_2, place_2, row_2, rest_2, sum_2,
        split, second, point, T, B, D, ROWS, WIDTH,
    )  # fmt: skip


@triton.jit
def _add_odds(rows, n, is_real, query, log_total, left_out, value, odds_sum, total):  # type: ignore[no-untyped-def]
    """One term of a tile of rows: adds to (ROWS,), (ROWS,) and (ROWS, WIDTH)."""
    s = tl.sum(rows * query[None, :], axis=1)
    h = tl.where(is_real & (n != left_out), tl.exp(s - log_total), 0.0)
    odds = h / (1.0 - h)
    return value - _log1p(-h), odds_sum + odds, total + odds[:, None] * rows


@triton.jit(do_not_specialize=["bound", "seed", "step"])
def _odds_kernel(  # type: ignore[no-untyped-def]
    queries, table, given, keys, exclude, bound, seed, step, totals, left_out,
    values, odds_sums, weighted,
    T, B, D, count, share, GIVEN: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    point, split, first = tl.program_id(0), tl.program_id(1), 2 * tl.program_id(2)
    second = first + 1
    query_1 = _load_query(queries, first, point, T, B, D, WIDTH)
    query_2 = _load_query(queries, second, point, T, B, D, WIDTH)
    # A term that is not there has scores of 0: any finite denominator above 2 does.
    total_1 = tl.load(totals + first * B + point)
    total_2 = tl.load(totals + second * B + point, mask=second < T, other=1.0)
    out_1 = tl.load(left_out + first * B + point)
    out_2 = tl.load(left_out + second * B + point, mask=second < T, other=0)
    value_1 = tl.zeros((ROWS,), tl.float32)
    odds_1 = tl.zeros((ROWS,), tl.float32)
    sum_1 = tl.zeros((ROWS, WIDTH), tl.float32)
    value_2, odds_2, sum_2 = value_1, odds_1, sum_1
    stop = tl.minimum(split * share + share, count)
    for start in range(split * share, stop, ROWS):
        n = start + tl.arange(0, ROWS)
        is_real = n < stop
        places = _drawn(point, n, is_real, given, keys, exclude, bound, seed, step, count, GIVEN)
        rows = _load_rows(table, places, is_real, D, WIDTH)
        value_1, odds_1, sum_1 = _add_odds(
            rows, n, is_real, query_1, total_1, out_1, value_1, odds_1, sum_1
        )
        value_2, odds_2, sum_2 = _add_odds(
            rows, n, is_real, query_2, total_2, out_2, value_2, odds_2, sum_2
        )
    _store(values, tl.sum(value_1, axis=0), split, first, point, T, B)
    _store(values, tl.sum(value_2, axis=0), split, second, point, T, B)
    _store(odds_sums, tl.sum(odds_1, axis=0), split, first, point, T, B)
    _store(odds_sums, tl.sum(odds_2, axis=0), split, second, point, T, B)
    _store_row(weighted, tl.sum(sum_1, axis=0), split, first, point, T, B, D, WIDTH)
    _store_row(weighted, tl.sum(sum_2, axis=0), split, second, point, T, B, D, WIDTH)


def sigmoid_sums(
    queries: Tensor, table: Tensor, draw: Draw | Tensor, shift: Tensor
) -> tuple[Tensor, Tensor]:
    """See :func:`pirl_plugin.memory.blocked.sigmoid_sums`."""
    plan = _Plan(queries, table, draw)
    values, weighted = plan.empty(), plan.empty(wide=True)
    plan.run(_sigmoid_kernel, shift.to(queries), values, weighted)
    return values.sum(dim=0), weighted.sum(dim=0)


def softmax_sums(queries: Tensor, table: Tensor, draw: Draw | Tensor) -> Softmax:
    """See :func:`pirl_plugin.memory.blocked.softmax_sums`."""
    plan = _Plan(queries, table, draw)
    tops, rests, at = plan.empty(), plan.empty(), plan.empty(torch.int32)
    top_rows, rest_sums = plan.empty(wide=True), plan.empty(wide=True)
    plan.run(_softmax_kernel, tops, at, top_rows, rests, rest_sums)
    return join(Softmax(tops, at.long(), top_rows, rests, rest_sums))


def odds_sums(
    queries: Tensor, table: Tensor, draw: Draw | Tensor, log_total: Tensor, place: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """See :func:`pirl_plugin.memory.blocked.odds_sums`."""
    plan = _Plan(queries, table, draw)
    values, odds, weighted = plan.empty(), plan.empty(), plan.empty(wide=True)
    skipped = place.to(torch.int32).contiguous()
    plan.run(_odds_kernel, log_total.contiguous(), skipped, values, odds, weighted)
    return values.sum(dim=0), odds.sum(dim=0), weighted.sum(dim=0)


class _Plan:
    """How the negatives of a batch are split among programs."""

    def __init__(self, queries: Tensor, table: Tensor, draw: Draw | Tensor) -> None:
        _, batch, dim = queries.shape
        self.queries, self.table, self.draw = queries.contiguous(), table.contiguous(), draw
        self.count = draw.shape[1] if isinstance(draw, Tensor) else draw.num_negatives
        width = triton.next_power_of_2(dim)
        rows = max(1, _TILE // width)
        splits = max(1, min(_PROGRAMS // batch, triton.cdiv(self.count, 4 * rows)))
        self.share = triton.cdiv(triton.cdiv(self.count, splits), rows) * rows
        self.splits = triton.cdiv(self.count, self.share)
        self.sizes = {"ROWS": rows, "WIDTH": width}

    def empty(self, dtype: torch.dtype = torch.float32, wide: bool = False) -> Tensor:
        """One part for each split: ``(splits, T, B)``, with ``wide`` also ``D``."""
        shape = self.queries.shape if wide else self.queries.shape[:2]
        return torch.empty(self.splits, *shape, dtype=dtype, device=self.queries.device)

    def run(self, kernel: Any, *arguments: Tensor) -> None:
        """Launch a program of a kernel for each data point, split and pair of terms."""
        terms, batch, dim = self.queries.shape
        if isinstance(self.draw, Tensor):
            given = self.draw.contiguous()
            made = (given, given, given, 0, 0, 0)
        else:
            draw = self.draw
            keys, exclude = draw.rows.contiguous(), draw.exclude.contiguous()
            made = (keys, keys, exclude, draw.num_rows, draw.seed, draw.step)
        kernel[(batch, self.splits, triton.cdiv(terms, 2))](
            self.queries, self.table, *made, *arguments,
            terms, batch, dim, self.count, self.share,
            GIVEN=isinstance(self.draw, Tensor), **self.sizes,
        )  # fmt: skip
