"""CPU kernels: gather random rows, multiply them with vectors, and draw negatives.

A processor prefetches consecutive rows, but not random rows: ``torch.index_select`` waits for each
of them. The kernel here requests each row before it is needed. The product of a few vectors with
many rows is as fast as reading the rows. ``torch.matmul`` takes 3 times as long.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic
from torch import Tensor

from pirl_plugin.compiled import compiled

_AHEAD = 16  # rows prefetched: about as many as a core can wait for at once
_LINE = 64  # bytes of a cache line
_PART = 256  # rows of a partial sum: in float32, a sum of partial sums rounds less
_WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # integers by bytes


def gather_rows(table: Tensor, index: Tensor, out: Tensor) -> Tensor:
    """Gather rows as ``torch.index_select(table, 0, index, out=out)`` does, but faster on a CPU.

    Args:
        table: ``(rows, D)``, contiguous, of any type.
        index: ``(n,)`` int64.
        out: ``(n, D)``, contiguous, of the table's type; overwritten.

    Returns:
        ``out``.

    Raises:
        IndexError: an index is outside the table.

    Example:
        >>> table = torch.arange(6.0).view(3, 2)
        >>> gather_rows(table, torch.tensor([2, 0]), torch.empty(2, 2))
        tensor([[4., 5.],
                [0., 1.]])
    """
    if table.device.type != "cpu" or not table.is_contiguous():
        return torch.index_select(table, 0, index, out=out)
    word = _WORDS[table.element_size()]
    source, target = table.detach().view(word).numpy(), out.detach().view(word).numpy()
    bad = _gather(source, index.numpy(), target, max(1, _LINE // table.element_size()))
    if bad >= 0:
        raise IndexError(
            f"a drawn row is {int(index[bad])}: expected a row in [0, {len(table)}); check the "
            f"negatives that the loss was given"
        )
    return out


def score_rows(rows: Tensor, queries: Tensor) -> Tensor:
    """Return the scores of each image's queries against its rows, ``queries @ rows.mT``.

    Args:
        rows: ``(B, N, D)``, contiguous, float32 or float64.
        queries: ``(B, T, D)``, of the same type.

    Returns:
        ``(B, T, N)``.
    """
    if rows.device.type != "cpu":
        return queries @ rows.mT
    scores = rows.new_empty(*queries.shape[:2], rows.shape[1])
    _score(rows.numpy(), queries.contiguous().numpy(), scores.numpy())
    return scores


def sum_rows(rows: Tensor, weights: Tensor) -> Tensor:
    """Return weighted sums of each image's rows, ``weights @ rows``.

    Args:
        rows: ``(B, N, D)``, contiguous, float32 or float64.
        weights: ``(B, T, N)``, of the same type.

    Returns:
        ``(B, T, D)``.
    """
    if rows.device.type != "cpu":
        return weights @ rows
    sums = rows.new_zeros(*weights.shape[:2], rows.shape[2])
    _sum(rows.numpy(), weights.contiguous().numpy(), sums.numpy())
    return sums


@intrinsic
def _prefetch(typing_context, array, row, column):
    """Prefetch the cache line of ``array[row, column]``, without waiting for it."""

    def generate(context, builder, signature, arguments):
        kind = signature.args[0]
        struct = context.make_array(kind)(context, builder, arguments[0])
        indices = arguments[1:]
        address = cgutils.get_item_pointer(context, builder, kind, struct, indices)
        pointer, number = cgutils.voidptr_t, ir.IntType(32)
        function = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(ir.VoidType(), [pointer, number, number, number]),
            "llvm.prefetch.p0i8",
        )
        to_read, into_all_caches, data = (ir.Constant(number, value) for value in (0, 3, 1))
        builder.call(function, [builder.bitcast(address, pointer), to_read, into_all_caches, data])
        return context.get_dummy_value()

    return types.void(array, row, column), generate


@compiled
def _gather(table, index, out, step):
    """Copy rows; return the position of the first index outside the table, −1 if there is none.

    Args:
        table: (rows, D).
        index: int64 (n,).
        out: (n, D).
        step: elements of a cache line.
    """
    count, dim = out.shape
    for k in range(count):
        if index[k] < 0 or index[k] >= table.shape[0]:
            return k
    for k in range(count):
        if k + _AHEAD < count:
            ahead = index[k + _AHEAD]
            for column in range(0, dim, step):
                _prefetch(table, ahead, column)  # type: ignore[call-arg]
        row = index[k]
        for column in range(dim):
            out[k, column] = table[row, column]
    return -1


@partial(compiled, fastmath={"reassoc", "contract"})  # the order of sums is free
def _score(rows, queries, scores):
    for i in range(rows.shape[0]):
        for k in range(rows.shape[1]):
            for t in range(queries.shape[1]):
                total = scores.dtype.type(0)
                for d in range(rows.shape[2]):
                    total += rows[i, k, d] * queries[i, t, d]
                scores[i, t, k] = total


@partial(compiled, fastmath={"reassoc", "contract"})
def _sum(rows, weights, sums):
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
    """Fill ``out`` with the numbers of ``pirl_plugin.negatives._integers``.

    Args:
        keys: int64 (B,).
        bounds: int64 (B,), below 2³¹.
        out: int64 (B, N).
    """
    golden, word, half = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xFFFFFFFF), np.uint64(32)
    first, second = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
    for i in range(out.shape[0]):
        key, bound = np.uint64(keys[i]), np.uint64(bounds[i])
        for k in range(out.shape[1]):
            z = key + np.uint64(k + 1) * golden
            z = (z ^ (z >> np.uint64(30))) * first
            z = (z ^ (z >> np.uint64(27))) * second
            z = z ^ (z >> np.uint64(31))
            out[i, k] = np.int64(((z >> half) * bound + (((z & word) * bound) >> half)) >> half)
