"""What a program of :mod:`pirl_plugin.losses.engines.triton` does with one tile of rows.

A tile is ``(CHUNKS, ROWS, LANES)`` float32: ``ROWS`` rows of the table, each padded to a power of
two dimensions and cut into chunks of 128 bytes, which eight lanes of a warp read at 16 bytes each.
So a warp reads four rows at once, and what it computes of a row's score it computes for four. All
sums are kept by row of the tile, ``(ROWS,)`` and as the tile, until the last tile is done.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def log1p(y):
    """log(1 + y) for y in [−1/2, 1], to float32's precision also near 0: 2·atanh(y / (2 + y))."""
    z = y / (2.0 + y)
    w = z * z
    series = 1 / 13 + w * (1 / 15)
    series = 1 / 9 + w * (1 / 11 + w * series)
    series = 1 / 5 + w * (1 / 7 + w * series)
    return 2.0 * z * (1.0 + w * (1 / 3 + w * series))


@triton.jit
def ratio(lower, higher):
    """exp(lower − higher), 0 where ``lower`` is −inf, also beside −inf."""
    return tl.exp(lower - tl.where(higher == -float("inf"), 0.0, higher))


@triton.jit
def dimensions(CHUNKS: tl.constexpr, LANES: tl.constexpr):
    """Numbers of the dimensions in a tile, ``(CHUNKS, LANES)``."""
    return tl.arange(0, CHUNKS)[:, None] * LANES + tl.arange(0, LANES)[None, :]


@triton.jit
def load_query(queries, term, image, T, B, D, CHUNKS: tl.constexpr, LANES: tl.constexpr):
    """``queries[term, image]`` as ``(CHUNKS, 1, LANES)``; zeros for a term that is not there."""
    d = dimensions(CHUNKS, LANES)
    at = (term.to(tl.int64) * B + image) * D + d
    return tl.load(queries + at, mask=d < tl.where(term < T, D, 0), other=0.0)[:, None, :]


@triton.jit
def load_rows(
    table, draw, image, n, is_real, D, count,
    FULL: tl.constexpr, EXACT: tl.constexpr, CHUNKS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Rows number ``n`` of an image's draw; zeros where they are not real.

    ``FULL`` says that all are, ``EXACT`` that a row has as many dimensions as the tile: no masks.
    """
    d = dimensions(CHUNKS, LANES)[:, None, :]
    drawn = draw + image.to(tl.int64) * count + n
    if FULL:
        indices = tl.load(drawn)
    else:
        indices = tl.load(drawn, mask=is_real, other=0)
    stride = CHUNKS * LANES if EXACT else D
    at = table + indices.to(tl.int64)[None, :, None] * stride + d
    # So that lanes are given to rows before chunks: of dimensions alike, versions of Triton differ
    # in which they take first. What is said of rows is used for nothing else.
    at = tl.max_contiguous(at, (1, 2, LANES))
    if FULL and EXACT:
        rows = tl.load(at)
    else:
        rows = tl.load(at, mask=is_real[None, :, None] & (d < D), other=0.0)
    return rows.to(tl.float32)


@triton.jit
def scores(rows, query):
    """Products of the tile's rows with a query, ``(ROWS,)``."""
    return tl.sum(tl.sum(rows * query, axis=0), axis=1)


@triton.jit
def spread(by_row):
    """``(ROWS,)`` to ``(1, ROWS, 1)``."""
    return by_row[None, :, None]


@triton.jit
def store(sums, value, split, term, image, T, B):
    """To ``sums[split, term, image]``."""
    tl.store(sums + (split * T + term) * B + image, value, mask=term < T)


@triton.jit
def store_row(sums, tile, split, term, image, T, B, D, CHUNKS: tl.constexpr, LANES: tl.constexpr):
    """The sum of a tile's rows to ``sums[split, term, image, :]``."""
    value = tl.sum(tile, axis=1)
    d = dimensions(CHUNKS, LANES)
    at = ((split * T + term) * B + image) * D + d
    tl.store(sums + at, value, mask=d < tl.where(term < T, D, 0))


@triton.jit
def add_sigmoids(rows, is_real, query, shift, value, total, FULL: tl.constexpr):
    """One term of a tile: adds to (ROWS,) and to the tile's sums."""
    x = scores(rows, query) - shift
    small = tl.exp(-tl.abs(x))
    sigmoid = tl.where(x >= 0, 1.0, small) / (1.0 + small)
    softplus = tl.maximum(x, 0.0) + log1p(small)
    if not FULL:
        softplus = tl.where(is_real, softplus, 0.0)
        sigmoid = tl.where(is_real, sigmoid, 0.0)
    return value + softplus, total + spread(sigmoid) * rows


@triton.jit
def add_softmax(
    rows, n, is_real, query, top, index, top_row, second, rest, rest_sum, FULL: tl.constexpr
):
    """One term of a tile: each of its rows keeps statistics of the rows that passed through it."""
    s = scores(rows, query)
    if not FULL:
        s = tl.where(is_real, s, -float("inf"))
    # The lower of the top and the new score is one of the rest from now on.
    wins = s > top
    lower = tl.minimum(s, top)
    highest = tl.maximum(lower, second)
    lower_scale, scale = ratio(lower, highest), ratio(second, highest)
    lower_row = tl.where(spread(wins), top_row, rows)
    rest = rest * scale + lower_scale
    rest_sum = rest_sum * spread(scale) + lower_row * spread(lower_scale)
    top_row = tl.where(spread(wins), rows, top_row)
    return tl.maximum(s, top), tl.where(wins, n, index), top_row, highest, rest, rest_sum


@triton.jit
def store_softmax(
    tops, indices, top_rows, seconds, rests, rest_sums, top, index, top_row, second, rest, rest_sum,
    split, term, image, T, B, D,
    ROWS: tl.constexpr, CHUNKS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Join the statistics of a tile's rows; see :func:`pirl_plugin.losses.engines.softmax.join`."""
    is_top = tl.arange(0, ROWS) == tl.argmax(top, axis=0)
    beaten = tl.where(is_top, -float("inf"), top)
    highest = tl.max(tl.maximum(beaten, second), axis=0)
    scale, beaten_scale = ratio(second, highest), ratio(beaten, highest)
    rest_sum = rest_sum * spread(scale) + top_row * spread(beaten_scale)
    top_row = tl.where(spread(is_top), top_row, 0.0)
    index = tl.where(is_top, index, 0)
    store(tops, tl.max(top, axis=0), split, term, image, T, B)
    store(indices, tl.sum(index, axis=0), split, term, image, T, B)
    store(seconds, highest, split, term, image, T, B)
    store(rests, tl.sum(rest * scale + beaten_scale, axis=0), split, term, image, T, B)
    store_row(top_rows, top_row, split, term, image, T, B, D, CHUNKS, LANES)
    store_row(rest_sums, rest_sum, split, term, image, T, B, D, CHUNKS, LANES)


@triton.jit
def add_odds(
    rows, n, is_real, query, log_total, left_out, value, odds_sum, total, FULL: tl.constexpr
):
    """One term of a tile: adds to (ROWS,), (ROWS,) and to the tile's sums."""
    s = scores(rows, query)
    counts = n != left_out
    if not FULL:
        counts = counts & is_real
    h = tl.where(counts, tl.exp(s - log_total), 0.0)
    odds = h / (1.0 - h)
    return value - log1p(-h), odds_sum + odds, total + spread(odds) * rows
