"""Scores of embeddings against their rows of the memory bank, a few images at a time (Eq. 3).

All drawn rows of a batch, B×N×D, would take 0.5 GB. So only the rows of a few images are gathered
at a time. The estimator runs on their scores, and autograd gives its gradient with respect to the
scores. One product with the same rows then gives the gradient of the embeddings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pirl_plugin.gather import gather_rows, score_rows, sum_rows

_MOST_BYTES = {"cpu": 2**24, "cuda": 2**28}  # of gathered rows


@dataclass(frozen=True)
class Contrast:
    """The input of the scores: T outputs of B images, the images' own rows, and N drawn rows each.

    Attributes:
        queries: ``(T, B, D)`` unit-norm embeddings, float32 or float64.
        positives: ``(B, D)``, each image's own row of the bank, any floating type.
        table: ``(rows, D)`` unit-norm rows, any floating type; gets no gradient.
        drawn: ``(B, N)`` int64, rows of the table; an expanded view: the batch shares one draw.
        temperature: τ > 0.
    """

    queries: Tensor
    positives: Tensor
    table: Tensor
    drawn: Tensor
    temperature: float

    def estimate(self, estimator: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """Compute an estimator for each output and image.

        Args:
            estimator: function of scores over τ, ``(b,)`` and ``(b, N)``, that returns ``(b,)``.

        Returns:
            ``(T, B)``, in the type of the queries, with a gradient for the queries.
        """
        values: Tensor = _Estimate.apply(self.queries, self, estimator)
        return values

    @torch.no_grad()
    def sum_of_exponentials(self, valid: Tensor) -> Tensor:
        """Sum exp(s/τ) over the drawn rows of valid images, to estimate Z.

        Args:
            valid: ``(B,)`` bool.

        Returns:
            ``(2,)``, the sum and the number of terms; float64, or float32 without float64.
        """
        total = torch.zeros((), dtype=wide_type(valid.device), device=valid.device)
        for images, _, _, negatives in self._blocks():
            sums = negatives.to(total.dtype).exp().sum(dim=2)  # T×b
            total += sums.masked_fill(~valid[images], 0).sum()
        number = valid.sum() * (len(self.queries) * self.drawn.shape[1])
        return torch.stack([total, number.to(total.dtype)])

    def _blocks(self) -> Iterator[tuple[slice, Tensor, Tensor, Tensor]]:
        """Yield images, their drawn rows, and their scores, ``(T, b)`` and ``(T, b, N)``.

        The rows are ``(b, N, D)``, or ``(1, N, D)`` if the batch shares its draw.
        """
        terms, batch, dim = self.queries.shape
        count, kind = self.drawn.shape[1], self.queries.dtype
        shared = batch > 1 and self.drawn.stride(0) == 0
        width = terms if shared else dim  # numbers held for each score
        most = _MOST_BYTES.get(self.queries.device.type, _MOST_BYTES["cuda"])
        size = max(1, most // (count * width * kind.itemsize))
        buffer = self.table.new_empty((1 if shared else min(size, batch)) * count, dim)
        rows = buffer
        for start in range(0, batch, size):
            images = slice(start, min(start + size, batch))
            if not shared or start == 0:
                drawn = self.drawn[:1] if shared else self.drawn[images]
                found = gather_rows(self.table, drawn.reshape(-1), buffer[: drawn.numel()])
                rows = found.view(-1, count, dim).to(kind)
            queries = self.queries.detach()[:, images] / self.temperature
            positive = torch.einsum("tbd,bd->tb", queries, self.positives[images].to(kind))
            if shared:
                negatives = queries @ rows[0].T
            else:
                negatives = score_rows(rows, queries.transpose(0, 1)).transpose(0, 1)
            yield images, rows, positive, negatives


class _Estimate(torch.autograd.Function):
    """Values ``(T, B)`` of an estimator; the forward pass also computes their gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        queries: Tensor,
        contrast: Contrast,
        estimator: Callable[[Tensor, Tensor], Tensor],
    ) -> Tensor:
        values = queries.new_empty(queries.shape[:2])
        gradient = torch.empty_like(queries)
        for images, rows, positive, negatives in contrast._blocks():
            positive = positive.flatten().requires_grad_()  # T·b
            negatives = negatives.flatten(0, 1).requires_grad_()  # T·b×N
            with torch.enable_grad():
                value = estimator(positive, negatives)
                by_positive, by_negatives = torch.autograd.grad(value.sum(), (positive, negatives))
            shape = values[:, images].shape
            values[:, images] = value.detach().view(shape)
            # Σ_k ∂L/∂s_k · m_k: T×b×D
            weights = by_negatives.view(*shape, -1)
            if len(rows) < shape[1]:  # the batch shares its draw
                total = weights @ rows[0]
            else:
                total = sum_rows(rows, weights.transpose(0, 1)).transpose(0, 1)
            own = contrast.positives[images].to(queries.dtype)
            gradient[:, images] = total + by_positive.view(*shape, 1) * own
        ctx.save_for_backward(gradient.div_(contrast.temperature))
        return values

    @staticmethod
    def backward(ctx: Any, *by_values: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return by_values[0][..., None] * gradient, None, None


def wide_type(device: torch.device) -> torch.dtype:
    """Return float64, or float32 if the device has no float64."""
    return torch.float32 if device.type == "mps" else torch.float64
