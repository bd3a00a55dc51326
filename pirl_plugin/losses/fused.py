"""The three estimators from sums over the drawn rows: value and gradient in one pass.

What :mod:`pirl_plugin.losses.functional` does on ``(B, N)`` scores, without them. With s_0 the
positive's score, s_k the negatives', all over τ, and m_k their rows, the gradients to a query q are

    nce          (Σ σ(s_k − c)·m_k − σ(c − s_0)·m_0) / τ            with c = log(Z·N/|D|)
    info_nce     (Σ h_k·m_k + h_0·m_0 − m_0) / τ
    nce_softmax  (Σ o_k·m_k + (1 − Σ o_k)(Σ h_k·m_k + h_0·m_0) − m_0) / τ

where h is the softmax over positive and negatives, and o_k = h_k/(1 − h_k). The largest negative's
h may come near 1; in the last line all that is divided by 1 − h is then gathered into shares of
what is left of 1, exp(s − log_others), so that nothing large is subtracted from something large.

The sums come from :mod:`pirl_plugin.memory.blocked` or :mod:`pirl_plugin.memory.triton_kernel`.
``nce_softmax`` reads the rows twice: its Σ log(1 − h_k) needs the denominator first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

if TYPE_CHECKING:
    from pirl_plugin.memory.negatives import Draw


def fused_loss(
    estimator: str,
    queries: Tensor,
    own: Tensor,
    table: Tensor,
    draw: Draw | Tensor,
    temperature: float,
    sums: Any,
    shift: Tensor | None = None,
) -> Tensor:
    """L_NCE of each term and data point.

    Args:
        estimator: ``nce``, ``nce_softmax`` or ``info_nce``.
        queries: ``(T, B, D)`` unit-norm embeddings.
        own: ``(B, D)``, the own rows.
        table: ``(rows, D)``, any floating type; gets no gradient.
        draw: a ``Draw``, or ``(B, N)`` int64 rows of the table.
        temperature: τ.
        sums: the module :mod:`~pirl_plugin.memory.blocked` or
            :mod:`~pirl_plugin.memory.triton_kernel`.
        shift: log(Z·N/|D|), a scalar; for ``nce``.

    Returns:
        ``(T, B)``.

    Raises:
        RuntimeError: it is differentiated twice.
    """
    own = own.to(queries.dtype)
    return _Fused.apply(queries, own, table, draw, temperature, estimator, sums, shift)


def log_sums(
    queries: Tensor, table: Tensor, draw: Draw | Tensor, temperature: float, sums: Any
) -> Tensor:
    """``(T, B)``, log Σ exp(s_k/τ) over the negatives, without gradient."""
    with torch.no_grad():
        return sums.softmax_sums(queries / temperature, table, draw).log_sum()


class _Fused(torch.autograd.Function):
    """The gradient to the queries is computed with the value, and kept for backward."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        queries: Tensor,
        own: Tensor,
        table: Tensor,
        draw: Draw | Tensor,
        temperature: float,
        estimator: str,
        sums: Any,
        shift: Tensor | None,
    ) -> Tensor:
        queries = queries / temperature
        positive = torch.einsum("tbd,bd->tb", queries, own)
        if estimator == "nce":
            assert shift is not None
            values, pull = sums.sigmoid_sums(queries, table, draw, shift)
            values += softplus(shift - positive)
            own_weight = -torch.sigmoid(shift - positive)
        else:
            softmax = sums.softmax_sums(queries, table, draw)
            log_rest = softmax.log_rest()
            log_others = torch.logaddexp(positive, log_rest)  # all but the largest negative
            log_total = torch.logaddexp(log_others, softmax.top)
            h_own, h_top, h_rest = (
                torch.exp(s - log_total) for s in (positive, softmax.top, log_rest)
            )
            values = log_total - positive
            own_weight, top_weight, rest_weight = h_own - 1, h_top, h_rest
            pull = 0
            if estimator == "nce_softmax":
                more, odds, pull = sums.odds_sums(queries, table, draw, log_total, softmax.place)
                values = values + more + log_total - log_others
                own_weight = h_own * (1 - odds) - h_top * torch.exp(positive - log_others) - 1
                rest_weight = h_rest * (1 - odds) - h_top * torch.exp(log_rest - log_others)
                top_weight = h_top * (2 - odds)
            pull = pull + top_weight[..., None] * softmax.top_row
            pull = pull + rest_weight[..., None] * softmax.rest_mean()
        ctx.save_for_backward((pull + own_weight[..., None] * own) / temperature)
        return values

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "pirl_loss was differentiated twice, and its fused scores keep the first "
                "derivative only: set LOSS.pirl_loss.scores to plain"
            )
        (gradient,) = ctx.saved_tensors
        return gradient * upstream[0][..., None], *[None] * 7
