"""What a program of :mod:`pirl_plugin.losses.engines.triton` does with one tile of rows.

A tile is ``(ROWS, WIDTH)`` float32, rows of the table padded to a power of two. All sums are kept
by row of the tile, ``(ROWS,)`` and ``(ROWS, WIDTH)``, until the last tile is done.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def log1p(y):  # type: ignore[no-untyped-def]
    """log(1 + y) for y in [−1/2, 1], to float32's precision also near 0: 2·atanh(y / (2 + y))."""
    z = y / (2.0 + y)
    w = z * z
    series = 1 / 13 + w * (1 / 15)
    series = 1 / 9 + w * (1 / 11 + w * series)
    series = 1 / 5 + w * (1 / 7 + w * series)
    return 2.0 * z * (1.0 + w * (1 / 3 + w * series))


@triton.jit
def ratio(lower, higher):  # type: ignore[no-untyped-def]
    """exp(lower − higher), 0 where ``lower`` is −inf, also beside −inf."""
    return tl.exp(lower - tl.where(higher == -float("inf"), 0.0, higher))


@triton.jit
def drawn(point, n, is_real, given, keys, exclude, bound, seed, step, count, GIVEN: tl.constexpr):  # type: ignore[no-untyped-def]
    """Rows of the table that are number ``n`` of a data point's negatives."""
    if GIVEN:
        return tl.load(given + point.to(tl.int64) * count + n, mask=is_real, other=0)
    key = tl.load(keys + point)
    excluded = tl.load(exclude + point)
    zero = n * 0
    step = step.to(tl.int64)
    step_low, step_high = (step & 0xFFFFFFFF).to(tl.int32), (step >> 32).to(tl.int32)
    a, b, c, d = tl.philox(
        seed.to(tl.int64), n // 2, zero + key.to(tl.int32), zero + step_low, zero + step_high, 10
    )
    first = n % 2 == 0
    high = tl.where(first, a, c).to(tl.uint64)
    low = tl.where(first, b, d).to(tl.uint64)
    below = (bound.to(tl.int64) - (excluded >= 0).to(tl.int64)).to(tl.uint64)
    drawn = ((high * below + ((low * below) >> 32)) >> 32).to(tl.int64)
    return drawn + ((drawn >= excluded) & (excluded >= 0)).to(tl.int64)  # step over the row itself


@triton.jit
def load_query(queries, term, point, T, B, D, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """``queries[term, point]`` as ``(WIDTH,)``; zeros for a term that is not there."""
    d = tl.arange(0, WIDTH)
    at = (term.to(tl.int64) * B + point) * D + d
    return tl.load(queries + at, mask=d < tl.where(term < T, D, 0), other=0.0)


@triton.jit
def load_rows(table, indices, is_real, D, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """The rows of the table at indices ``(ROWS,)``; zeros where they are not real."""
    d = tl.arange(0, WIDTH)
    inside = is_real[:, None] & (d[None, :] < D)
    return tl.load(table + indices[:, None] * D + d[None, :], mask=inside, other=0.0).to(tl.float32)


@triton.jit
def store(sums, value, split, term, point, T, B):  # type: ignore[no-untyped-def]
    """To ``sums[split, term, point]``."""
    tl.store(sums + (split * T + term) * B + point, value, mask=term < T)


@triton.jit
def store_row(sums, value, split, term, point, T, B, D, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """To ``sums[split, term, point, :]``."""
    d = tl.arange(0, WIDTH)
    at = ((split * T + term) * B + point) * D + d
    tl.store(sums + at, value, mask=d < tl.where(term < T, D, 0))


@triton.jit
def add_sigmoids(rows, is_real, query, shift, value, total):  # type: ignore[no-untyped-def]
    """One term of a tile of rows (ROWS, WIDTH): adds to (ROWS,) and (ROWS, WIDTH)."""
    x = tl.sum(rows * query[None, :], axis=1) - shift
    small = tl.exp(-tl.abs(x))
    sigmoid = tl.where(x >= 0, 1.0, small) / (1.0 + small)
    softplus = tl.maximum(x, 0.0) + log1p(small)
    value += tl.where(is_real, softplus, 0.0)
    total += tl.where(is_real, sigmoid, 0.0)[:, None] * rows
    return value, total


@triton.jit
def add_softmax(rows, n, is_real, query, top, index, top_row, second, rest, rest_sum):  # type: ignore[no-untyped-def]
    """One term of a tile: each of its rows keeps statistics of the rows that passed through it."""
    s = tl.sum(rows * query[None, :], axis=1)
    s = tl.where(is_real, s, -float("inf"))
    # The lower of the top and the new score is one of the rest from now on.
    wins = s > top
    lower = tl.minimum(s, top)
    highest = tl.maximum(lower, second)
    lower_scale, scale = ratio(lower, highest), ratio(second, highest)
    lower_row = tl.where(wins[:, None], top_row, rows)
    rest = rest * scale + lower_scale
    rest_sum = rest_sum * scale[:, None] + lower_row * lower_scale[:, None]
    top_row = tl.where(wins[:, None], rows, top_row)
    return tl.maximum(s, top), tl.where(wins, n, index), top_row, highest, rest, rest_sum


@triton.jit
def store_softmax(  # type: ignore[no-untyped-def]
    tops, indices, top_rows, seconds, rests, rest_sums, top, index, top_row, second, rest, rest_sum,
    split, term, point, T, B, D, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Join the statistics of a tile's rows; see :func:`pirl_plugin.losses.engines.softmax.join`."""
    is_top = tl.arange(0, ROWS) == tl.argmax(top, axis=0)
    beaten = tl.where(is_top, -float("inf"), top)
    highest = tl.max(tl.maximum(beaten, second), axis=0)
    scale, beaten_scale = ratio(second, highest), ratio(beaten, highest)
    rest_sum = rest_sum * scale[:, None] + top_row * beaten_scale[:, None]
    top_row = tl.where(is_top[:, None], top_row, 0.0)
    index = tl.where(is_top, index, 0)
    store(tops, tl.max(top, axis=0), split, term, point, T, B)
    store(indices, tl.sum(index, axis=0), split, term, point, T, B)
    store(seconds, highest, split, term, point, T, B)
    store(rests, tl.sum(rest * scale + beaten_scale, axis=0), split, term, point, T, B)
    store_row(top_rows, tl.sum(top_row, axis=0), split, term, point, T, B, D, WIDTH)
    store_row(rest_sums, tl.sum(rest_sum, axis=0), split, term, point, T, B, D, WIDTH)


@triton.jit
def add_odds(rows, n, is_real, query, log_total, left_out, value, odds_sum, total):  # type: ignore[no-untyped-def]
    """One term of a tile of rows: adds to (ROWS,), (ROWS,) and (ROWS, WIDTH)."""
    s = tl.sum(rows * query[None, :], axis=1)
    h = tl.where(is_real & (n != left_out), tl.exp(s - log_total), 0.0)
    odds = h / (1.0 - h)
    return value - log1p(-h), odds_sum + odds, total + odds[:, None] * rows
