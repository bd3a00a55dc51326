"""The loss of a batch against its draw, through all scores at once or through sums over rows."""

from __future__ import annotations

import functools
import importlib.util
import logging
import os
from typing import Any, Protocol

import torch
from torch import Tensor

from pirl_plugin.losses import functional
from pirl_plugin.losses.fused import fused_loss, log_sums
from pirl_plugin.memory import Draw, bank_scores
from pirl_plugin.memory.scores import prefers_whole_table


class Contrast(Protocol):
    """A batch's T terms against its positives and negatives."""

    def log_sums(self) -> Tensor:
        """``(T, B)``, log Σ exp(s/τ) over the negatives; no gradient comes from it."""

    def loss(
        self, estimator: str, norm_constant: Tensor | None = None, num_rows: int = 0
    ) -> Tensor:
        """``(T, B)`` values of an estimator; ``nce`` needs Z and |D|."""


class PlainContrast:
    """All scores ``(T, B, N)`` by :func:`~pirl_plugin.memory.bank_scores`, and autograd."""

    def __init__(
        self, queries: Tensor, own: Tensor, table: Tensor, draw: Draw | Tensor, temperature: float
    ) -> None:
        negatives = draw if isinstance(draw, Tensor) else draw.all()
        self.scores = bank_scores(queries, own, table, negatives, temperature)

    def log_sums(self) -> Tensor:
        """See :meth:`Contrast.log_sums`."""
        return self.scores[1].detach().logsumexp(dim=2)

    def loss(
        self, estimator: str, norm_constant: Tensor | None = None, num_rows: int = 0
    ) -> Tensor:
        """See :meth:`Contrast.loss`."""
        function = getattr(functional, estimator)
        constants = () if norm_constant is None else (norm_constant, num_rows)
        return torch.stack([function(*pair, *constants) for pair in zip(*self.scores, strict=True)])


class FusedContrast:
    """Sums over the drawn rows, with the gradient, by one of the modules of ``memory``."""

    def __init__(
        self,
        queries: Tensor,
        own: Tensor,
        table: Tensor,
        draw: Draw | Tensor,
        temperature: float,
        sums: Any,
    ) -> None:
        self.queries, self.own, self.table, self.draw = queries, own, table, draw
        self.temperature, self.sums = temperature, sums

    def log_sums(self) -> Tensor:
        """See :meth:`Contrast.log_sums`."""
        return log_sums(self.queries, self.table, self.draw, self.temperature, self.sums)

    def loss(
        self, estimator: str, norm_constant: Tensor | None = None, num_rows: int = 0
    ) -> Tensor:
        """See :meth:`Contrast.loss`."""
        shift = None
        if norm_constant is not None:
            count = self.draw.shape[1] if isinstance(self.draw, Tensor) else self.draw.num_negatives
            shift = torch.log(norm_constant * (count / num_rows)).to(self.queries.dtype)
        return fused_loss(
            estimator, self.queries, self.own, self.table, self.draw, self.temperature,
            self.sums, shift,
        )  # fmt: skip


def make_contrast(
    scores: str,
    queries: Tensor,
    own: Tensor,
    table: Tensor,
    draw: Draw | Tensor,
    temperature: float,
) -> Contrast:
    """Choose how a batch is contrasted with its draw.

    Args:
        scores: ``plain``, ``blocked`` (any device), ``triton`` (CUDA), or ``auto``: ``plain`` where
            the batch shares a draw, ``triton`` on CUDA, and on a CPU ``blocked``, or ``plain`` for
            a small table.
        queries: ``(T, B, D)`` unit-norm embeddings, float32 or float64.
        own: ``(B, D)``, the own rows.
        table: ``(rows, D)``.
        draw: a ``Draw``, or ``(B, N)`` int64 rows of the table.
        temperature: τ.

    Raises:
        ValueError: ``triton`` is asked for where it cannot run.
    """
    if not isinstance(draw, Tensor) and not draw.in_kernel:
        draw = draw.all()
    if scores == "auto":
        scores = _best(queries, table, draw)
    if scores == "plain":
        return PlainContrast(queries, own, table, draw, temperature)
    if scores == "blocked":
        from pirl_plugin.memory import blocked as sums
    else:
        _check_triton(table.device.type, queries.dtype)
        from pirl_plugin.memory import triton_kernel as sums  # type: ignore[no-redef]
    return FusedContrast(queries, own, table, draw, temperature, sums)


def _best(queries: Tensor, table: Tensor, draw: Draw | Tensor) -> str:
    if isinstance(draw, Tensor) and draw.stride(0) == 0:
        return "plain"
    if table.device.type == "cuda" and queries.dtype == torch.float32 and _triton_is_here():
        return "triton"
    count = draw.shape[1] if isinstance(draw, Tensor) else draw.num_negatives
    terms, batch, _ = queries.shape
    whole = prefers_whole_table(terms, batch, len(table), count)
    return "plain" if whole and table.dtype == queries.dtype else "blocked"


@functools.cache
def _triton_is_here() -> bool:
    here = importlib.util.find_spec("triton") is not None
    if not here:
        logging.warning(
            "pirl_loss: triton is not installed, so the scores against the memory bank are "
            "computed in blocks, several times slower: pip install triton"
        )
    return here


def _check_triton(device: str, dtype: torch.dtype) -> None:
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    runs = device == "cuda" or interpreted
    if importlib.util.find_spec("triton") is None or not runs or dtype != torch.float32:
        raise ValueError(
            f"LOSS.pirl_loss.scores = triton for {dtype} on {device}: expected float32 embeddings, "
            f"a CUDA device and the triton package; set it to auto or blocked"
        )
