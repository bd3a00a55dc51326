"""Triton kernels for CUDA: scores for drawn rows, and weighted sums over them.

``torch.bmm`` needs the drawn rows as one tensor, B×N×D, and is slow for the few queries per image.
These kernels read drawn rows directly from the bank into registers. Rows may be float32, bfloat16
or float16; products and sums are in float32.

In the kernels, B is the number of images, T of outputs per image, N of drawn rows, and D of
dimensions.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

# Drawn rows per tile, fastest on an H200 with D = 128.
_SCORED_ROWS = 32
_SUMMED_ROWS = 16
_MOST_PROGRAMS = 4096  # per weighted sum, enough for all multiprocessors on any GPU


@triton.jit
def _load_rows(table, num_rows, drawn, is_drawn, D, WIDTH: tl.constexpr):
    """Return the rows ``drawn`` as float32 (ROWS, WIDTH), padded with zeros.

    A row outside the table becomes NaN, because a GPU reports no error.
    """
    column = tl.arange(0, WIDTH)
    is_inside = (drawn >= 0) & (drawn < num_rows)
    mask = (is_drawn & is_inside)[:, None] & (column < D)[None, :]
    rows = tl.load(table + drawn[:, None] * D + column[None, :], mask=mask, other=0.0)
    return tl.where((is_drawn & (is_inside == 0))[:, None], float("nan"), rows.to(tl.float32))


@triton.jit
def _score_kernel(
    table, num_rows, drawn, queries, scores, T, N, D,
    ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Write ``scores[b, t, n] = queries[b, t] · table[drawn[b, n]]`` for a tile of n and all t."""
    image = tl.program_id(1).to(tl.int64)  # offsets in a large batch exceed 32 bits
    n = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, WIDTH)
    row_numbers = tl.load(drawn + image * N + n, mask=n < N, other=0)
    rows = _load_rows(table, num_rows, row_numbers, n < N, D, WIDTH)
    for t in range(T):
        query = tl.load(queries + (image * T + t) * D + column, mask=column < D, other=0.0)
        score = tl.sum(rows * query[None, :], axis=1)
        tl.store(scores + (image * T + t) * N + n, score, mask=n < N)


@triton.jit
def _sum_kernel(
    table, num_rows, drawn, weights, sums, T, B, N, D, share,
    ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Write ``sums[split, b, t] = Σ_n weights[b, t, n] · table[drawn[b, n]]`` over a share of n.

    A program computes two outputs t, for an image and its transformed version.
    """
    split = tl.program_id(0)
    image = tl.program_id(1).to(tl.int64)
    first = 2 * tl.program_id(2)
    second = first + 1
    column = tl.arange(0, WIDTH)
    first_total = tl.zeros((ROWS, WIDTH), tl.float32)
    second_total = tl.zeros((ROWS, WIDTH), tl.float32)
    end = tl.minimum((split + 1) * share, N)
    second_end = tl.where(second < T, end, 0)  # for odd T, the last program has no second output
    second_dim = tl.where(second < T, D, 0)
    for start in range(split * share, end, ROWS):
        n = start + tl.arange(0, ROWS)
        is_drawn = n < end
        row_numbers = tl.load(drawn + image * N + n, mask=is_drawn, other=0)
        rows = _load_rows(table, num_rows, row_numbers, is_drawn, D, WIDTH)
        offset = (image * T + first) * N + n
        first_weight = tl.load(weights + offset, mask=is_drawn, other=0.0)
        # The second output's weights follow the first's.
        second_weight = tl.load(weights + offset + N, mask=n < second_end, other=0.0)
        first_total += first_weight[:, None] * rows
        second_total += second_weight[:, None] * rows
    offset = ((split * B + image) * T + first) * D + column
    tl.store(sums + offset, tl.sum(first_total, axis=0), mask=column < D)
    tl.store(sums + offset + D, tl.sum(second_total, axis=0), mask=column < second_dim)


def score_drawn(table: Tensor, drawn: Tensor, queries: Tensor) -> Tensor:
    """Return scores between each image's queries and drawn rows.

    Args:
        table: ``(rows, D)``, contiguous, float32, bfloat16 or float16, on a GPU.
        drawn: ``(B, N)`` int64, rows of the table.
        queries: ``(B, T, D)`` float32.

    Returns:
        ``(B, T, N)`` float32.
    """
    batch, terms, dim = queries.shape
    count = drawn.shape[1]
    scores = queries.new_empty(batch, terms, count)
    with torch.cuda.device_of(table):  # or Triton would launch on the current GPU
        _score_kernel[(triton.cdiv(count, _SCORED_ROWS), batch)](
            table, len(table), drawn.contiguous(), queries.contiguous(), scores, terms, count, dim,
            ROWS=_SCORED_ROWS, WIDTH=triton.next_power_of_2(dim),
        )  # fmt: skip
    return scores


def sum_drawn(table: Tensor, drawn: Tensor, weights: Tensor) -> Tensor:
    """Return weighted sums over each image's drawn rows; the result is deterministic.

    Args:
        table: ``(rows, D)``, contiguous, float32, bfloat16 or float16, on a GPU.
        drawn: ``(B, N)`` int64, rows of the table.
        weights: ``(B, T, N)`` float32.

    Returns:
        ``(B, T, D)`` float32.
    """
    batch, terms, count = weights.shape
    dim = table.shape[1]
    # An image's programs each sum at least four tiles; torch.sum adds their results.
    splits = max(1, min(_MOST_PROGRAMS // batch, count // (4 * _SUMMED_ROWS)))
    share = triton.cdiv(count, splits)
    sums = weights.new_empty(splits, batch, terms, dim)
    with torch.cuda.device_of(table):
        _sum_kernel[(splits, batch, triton.cdiv(terms, 2))](
            table, len(table), drawn.contiguous(), weights.contiguous(), sums, terms, batch, count,
            dim, share, ROWS=_SUMMED_ROWS, WIDTH=triton.next_power_of_2(dim),
        )  # fmt: skip
    return sums.sum(dim=0)


def multiplies_correctly(device: torch.device) -> bool:
    """Return whether the kernels compile and give the products of two rows; this synchronizes."""
    rows = torch.tensor([[0.0, 1.0], [2.0, 3.0]], device=device)
    second = torch.ones(1, 1, dtype=torch.int64, device=device)
    return score_drawn(rows, second, rows[None]).tolist() == [[[3.0], [13.0]]]
