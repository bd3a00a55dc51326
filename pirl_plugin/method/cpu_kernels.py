"""CPU kernels: products of drawn rows with a few vectors, and random integers for the draw.

The products take no longer than reading the rows; ``torch.matmul`` takes 3 times as long.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from pirl_plugin.system.kernel_cache import compiled

_PART = 256  # rows per partial sum; in float32, adding partial sums loses less precision
_ANY_ORDER = {"reassoc", "contract"}  # lets the compiler reorder and vectorize sums


@partial(compiled, fastmath=_ANY_ORDER)
def score_rows(rows, queries, scores):
    """Fill ``scores`` with the products between each image's rows and queries.

    Args:
        rows: float (B, N, D).
        queries: (B, T, D), same type.
        scores: (B, T, N), same type; overwritten.
    """
    for i in range(rows.shape[0]):
        for k in range(rows.shape[1]):
            for t in range(queries.shape[1]):
                total = scores.dtype.type(0)
                for d in range(rows.shape[2]):
                    total += rows[i, k, d] * queries[i, t, d]
                scores[i, t, k] = total


@partial(compiled, fastmath=_ANY_ORDER)
def sum_rows(rows, weights, sums):
    """Add weighted sums of each image's rows to ``sums``.

    Args:
        rows: float (B, N, D).
        weights: (B, T, N), same type.
        sums: (B, T, D), same type.
    """
    part = np.empty(sums.shape[1:], sums.dtype)
    for i in range(rows.shape[0]):
        for start in range(0, rows.shape[1], _PART):
            part[:] = 0
            for k in range(start, min(start + _PART, rows.shape[1])):
                for t in range(weights.shape[1]):
                    weight = weights[i, t, k]
                    for d in range(rows.shape[2]):
                        part[t, d] += weight * rows[i, k, d]
            sums[i] += part


@compiled
def fill_integers(keys, bounds, out):
    """Fill ``out`` with the integers that ``pirl_plugin.method.negatives._integers`` specifies.

    Args:
        keys: int64 (B,).
        bounds: int64 (B,), below 2³¹.
        out: int64 (B, N).
    """
    golden = np.uint64(0x9E3779B97F4A7C15)
    first_multiplier = np.uint64(0xBF58476D1CE4E5B9)
    second_multiplier = np.uint64(0x94D049BB133111EB)
    low_half = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    for i in range(out.shape[0]):
        key = np.uint64(keys[i])
        bound = np.uint64(bounds[i])
        for k in range(out.shape[1]):
            z = key + np.uint64(k + 1) * golden
            z = (z ^ (z >> np.uint64(30))) * first_multiplier
            z = (z ^ (z >> np.uint64(27))) * second_multiplier
            z = z ^ (z >> np.uint64(31))
            low = ((z & low_half) * bound) >> half
            out[i, k] = np.int64(((z >> half) * bound + low) >> half)
