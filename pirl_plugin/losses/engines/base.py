"""What an engine is, and what it is given: one batch with its positives and its draw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from torch import Tensor

from pirl_plugin.memory import Draw

if TYPE_CHECKING:
    from pirl_plugin.losses.estimators.base import Estimator, NormConstant


@dataclass(frozen=True)
class ContrastBatch:
    """T terms of the loss over B images, each against its positive row and N drawn rows.

    Attributes:
        queries: ``(T, B, D)`` unit-norm embeddings, float32 or float64.
        positives: ``(B, D)``, each image's own row of the bank, any floating type.
        table: ``(rows, D)`` unit-norm rows to draw from, any floating type; gets no gradient.
        draw: a :class:`~pirl_plugin.memory.Draw`, or ``(B, N)`` int64 rows of the table.
        temperature: τ > 0.
    """

    queries: Tensor
    positives: Tensor
    table: Tensor
    draw: Draw | Tensor
    temperature: float

    @property
    def num_negatives(self) -> int:
        """N."""
        return num_drawn(self.draw)


class Engine(Protocol):
    """One batch, scored against its draw."""

    def log_sums(self) -> Tensor:
        """``(T, B)``, log Σ exp(s/τ) over the negatives; no gradient comes from it."""

    def loss(self, estimator: Estimator, constant: NormConstant) -> Tensor:
        """``(T, B)`` values of an estimator, with the gradient to the queries."""


def is_shared(draw: Draw | Tensor) -> bool:
    """Whether a draw ``(B, N)`` is made already, and is one that the batch shares, expanded."""
    return isinstance(draw, Tensor) and draw.stride(0) == 0


def num_drawn(draw: Draw | Tensor) -> int:
    """N of a draw that is made already, ``(B, N)``, or is still to be made."""
    return draw.shape[1] if isinstance(draw, Tensor) else draw.num_negatives
