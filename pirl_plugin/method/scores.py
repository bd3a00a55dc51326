"""Scores between embeddings and memory bank rows, a few images at a time (Eq. 3).

All drawn rows for a batch, B×N×D, would take 0.5 GB, so they are gathered for a few images at a
time. The estimator runs on their scores, and autograd differentiates it with respect to the
scores. A product with the same rows then gives the gradient for the embeddings. With Triton, a GPU
reads each row directly from the bank and gathers none.
"""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from pirl_plugin.method import cpu_kernels
from pirl_plugin.system.console import warn
from pirl_plugin.system.failures import check, type_and_shape

_MOST_BYTES = {"cpu": 2**24, "cuda": 2**28}  # per block, for rows or scores
_MOST_SUMS = 64  # partial sums per image, computed in parallel on a GPU

_OfRows = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class BankScores:
    """Scores for T outputs of B images, against their own rows and N drawn rows each.

    Attributes:
        queries: ``(B, T, D)`` unit-norm embeddings, float32 or float64.
        positives: ``(B, D)``, each image's own row in the bank, any floating type.
        table: ``(rows, D)`` unit-norm rows, any floating type, without a gradient.
        drawn: ``(B, N)`` int64, rows of the table; if expanded, the batch shares one draw.
        temperature: τ > 0.
    """

    queries: Tensor
    positives: Tensor
    table: Tensor
    drawn: Tensor
    temperature: float

    def estimate(self, estimator: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """Compute an estimator for each image and output.

        Args:
            estimator: maps scores over τ, ``(b,)`` and ``(b, N)``, to ``(b,)``.

        Returns:
            ``(B, T)``, with the queries' dtype and a gradient for the queries.
        """
        values: Tensor = _Estimate.apply(self.queries, self, estimator)
        return values

    @torch.no_grad()
    def sum_of_exponentials(self, valid: Tensor) -> Tensor:
        """Sum exp(s/τ) over drawn rows for valid images, to estimate Z.

        Args:
            valid: ``(B,)`` bool.

        Returns:
            ``(2,)`` float64: the sum and the number of terms.
        """
        total = torch.zeros((), dtype=torch.float64, device=valid.device)
        queries = self.queries / self.temperature
        for images, score, _ in self._blocks():
            negatives = score(queries[images])  # b×T×N
            sums = negatives.double().exp().sum(dim=2)  # b×T
            total += sums.masked_fill(~valid[images, None], 0).sum()
        number = valid.sum() * (self.queries.shape[1] * self.drawn.shape[1])
        return torch.stack([total, number.double()])

    def _blocks(self) -> Iterator[tuple[slice, _OfRows, _OfRows]]:
        """Yield images and two functions for their drawn rows, valid until the next block.

        The first maps queries ``(b, T, D)`` to scores ``(b, T, N)``: see :func:`score_rows`. The
        second maps weights ``(b, T, N)`` to weighted sums ``(b, T, D)``: see :func:`sum_rows`.
        """
        batch, _, dim = self.queries.shape
        count = self.drawn.shape[1]
        is_shared = batch > 1 and self.drawn.stride(0) == 0
        kernels = triton_kernels(self.queries.device)
        if is_shared or self.queries.dtype != torch.float32:
            kernels = None  # one matrix product serves a shared draw; Triton's kernels are float32
        size = self._block_size(gathers_rows=not is_shared and kernels is None)
        if is_shared:
            rows = self.table[self.drawn[0]].to(self.queries.dtype)  # N×D
        elif kernels is None:
            buffer = self.queries.new_empty(size * count, dim)  # for each block's rows
        for start in range(0, batch, size):
            images = slice(start, start + size)
            drawn = self.drawn[images]
            if kernels:
                score = partial(kernels.score_drawn, self.table, drawn)
                yield images, score, partial(kernels.sum_drawn, self.table, drawn)
            elif is_shared:
                score = partial(torch.matmul, other=rows.T)
                yield images, score, partial(torch.matmul, other=rows)
            else:
                gathered = gather_rows(self.table, drawn.reshape(-1), buffer[: drawn.numel()])
                rows = gathered.view(-1, count, dim)  # b×N×D
                yield images, partial(score_rows, rows), partial(sum_rows, rows)

    def _block_size(self, gathers_rows: bool) -> int:
        """Return the number of images per block, whose rows or scores fit in ``_MOST_BYTES``."""
        batch, num_outputs, dim = self.queries.shape
        numbers = self.drawn.shape[1] * num_outputs  # per image: scores, T×N
        number_bytes = self.queries.itemsize
        if gathers_rows:
            numbers = self.drawn.shape[1] * dim  # rows, N×D
            if self.table.dtype != self.queries.dtype:
                number_bytes += self.table.itemsize  # before their conversion
        most = _MOST_BYTES.get(self.queries.device.type, _MOST_BYTES["cuda"])
        fitting = max(1, most // (numbers * number_bytes))
        num_blocks = max(1, math.ceil(batch / fitting))
        return max(1, math.ceil(batch / num_blocks))  # equal blocks, so the peak is lower


class _Estimate(torch.autograd.Function):
    """Estimator values ``(B, T)``; the forward pass also computes their gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        queries: Tensor,
        scores: BankScores,
        estimator: Callable[[Tensor, Tensor], Tensor],
    ) -> Tensor:
        own_rows = scores.positives.to(queries.dtype)  # B×D
        scaled = queries.detach() / scores.temperature  # B×T×D
        positives = (scaled @ own_rows[:, :, None])[:, :, 0]  # B×T
        values = torch.empty_like(positives)
        by_positives = torch.empty_like(positives)
        gradient = torch.empty_like(scaled)
        for images, score, weighted_sum in scores._blocks():
            # Leaves of a separate graph, so autograd differentiates only the estimator.
            positive = positives[images].flatten().requires_grad_()  # b·T
            negatives = score(scaled[images]).flatten(0, 1).requires_grad_()  # b·T×N
            with torch.enable_grad():
                value = estimator(positive, negatives)  # b·T
                fits = getattr(value, "shape", None) == positive.shape
                expected = f"a tensor {tuple(positive.shape)}, one value per image"
                check("the estimator's result", type_and_shape(value), fits, expected)
                by_positive, by_negatives = torch.autograd.grad(
                    value,
                    (positive, negatives),
                    torch.ones_like(value),
                    materialize_grads=True,
                )
            block = values[images].shape  # b×T
            values[images] = value.detach().view(block)
            by_positives[images] = by_positive.view(block)
            # Σ_k ∂L/∂s_k · m_k: b×T×D
            gradient[images] = weighted_sum(by_negatives.view(*block, -1))
        gradient += by_positives[:, :, None] * own_rows[:, None]
        ctx.save_for_backward(gradient.div_(scores.temperature))  # the scores are over τ
        return values

    @staticmethod
    def backward(ctx: Any, *by_values: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return by_values[0][:, :, None] * gradient, None, None


def gather_rows(table: Tensor, index: Tensor, out: Tensor) -> Tensor:
    """Gather rows as ``torch.index_select(table, 0, index)`` does, with the dtype of ``out``.

    Args:
        table: ``(rows, D)``, any floating type.
        index: ``(n,)`` int64.
        out: ``(n, D)``, contiguous; overwritten.

    Returns:
        ``out``.

    Example:
        >>> table = torch.arange(6.0).view(3, 2)
        >>> gather_rows(table, torch.tensor([2, 0]), torch.empty(2, 2))
        tensor([[4., 5.],
                [0., 1.]])
    """
    if table.dtype == out.dtype:
        return torch.index_select(table, 0, index, out=out)
    return out.copy_(torch.index_select(table, 0, index))


def score_rows(rows: Tensor, queries: Tensor) -> Tensor:
    """Return scores between each image's queries and rows, ``queries @ rows.mT``.

    Args:
        rows: ``(B, N, D)``, contiguous, float32 or float64.
        queries: ``(B, T, D)``, same dtype.

    Returns:
        ``(B, T, N)``.
    """
    if rows.device.type != "cpu":
        return queries @ rows.mT
    scores = rows.new_empty(*queries.shape[:2], rows.shape[1])
    cpu_kernels.score_rows(rows.numpy(), queries.contiguous().numpy(), scores.numpy())
    return scores


def sum_rows(rows: Tensor, weights: Tensor) -> Tensor:
    """Return weighted sums over each image's rows, ``weights @ rows``.

    Args:
        rows: ``(B, N, D)``, contiguous, float32 or float64.
        weights: ``(B, T, N)``, same dtype.

    Returns:
        ``(B, T, D)``.
    """
    if rows.device.type != "cpu":
        return sum_in_parts(rows, weights)
    sums = rows.new_zeros(*weights.shape[:2], rows.shape[2])
    cpu_kernels.sum_rows(rows.numpy(), weights.contiguous().numpy(), sums.numpy())
    return sums


def sum_in_parts(rows: Tensor, weights: Tensor) -> Tensor:
    """Return ``weights @ rows`` as :func:`sum_rows` does, from partial sums over the rows.

    cuBLAS gives each image to one multiprocessor, which leaves most of a GPU idle. Partial sums are
    15 times as fast on an H200.
    """
    num_parts = math.gcd(rows.shape[1], _MOST_SUMS)
    parts = weights.unflatten(2, (num_parts, -1)).transpose(1, 2)  # B×S×T×N/S
    return (parts @ rows.unflatten(1, (num_parts, -1))).sum(dim=1)


@functools.cache
def triton_kernels(device: torch.device) -> ModuleType | None:
    """Return :mod:`pirl_plugin.method.triton_kernels` if it works on a device.

    Returns:
        None on devices other than GPUs. Also None, with a warning, if Triton is missing, cannot
        compile (it needs a C compiler), or computes wrong products.
    """
    if device.type != "cuda":
        return None
    try:
        kernels = importlib.import_module("pirl_plugin.method.triton_kernels")
        if kernels.multiplies_correctly(device):
            return kernels
        reason = "its products are wrong on this GPU"
    except torch.OutOfMemoryError:  # not Triton's fault, so the advice below would be wrong
        raise
    except Exception as error:  # Triton and its compilers raise many types
        reason = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
    warn(
        f"PIRLLoss runs without Triton kernels, which is several times slower ({reason}). Install "
        f"the triton package and a C compiler such as gcc."
    )
    return None
