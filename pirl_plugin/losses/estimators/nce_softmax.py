"""Eq. 3–4 of the paper as printed, with the softmax of a row as h.

:func:`nce_softmax`, the equation on scores, runs in the engine ``plain``: where the batch shares
its draw, or the bank is small. ``blocked`` and ``triton``, which the paper's sizes use, run
:meth:`NCESoftmax.from_sums`. ``tests/losses/estimators/test_agreement.py`` ties the two together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pirl_plugin.losses.estimators.base import NormConstant, StreamedEstimator
from pirl_plugin.utils.precision import at_least_float32

if TYPE_CHECKING:
    from pirl_plugin.losses.engines.sums import DrawnSums


def nce_softmax(positive: Tensor, negatives: Tensor) -> Tensor:
    """Compute Eq. 3–4: h is the softmax over the positive and the N negatives of a row.

    Args:
        positive: ``(B,)`` scores of the images' own rows, over τ.
        negatives: ``(B, N)`` scores of the drawn rows, over τ.

    Returns:
        ``(B,)`` −log h_pos − Σ log(1 − h_k), float32 or wider; finite whatever the scores are.

    Example:
        >>> import torch
        >>> # two equal scores: h = 1/2 for both, 2·log 2 = 1.3863
        >>> nce_softmax(torch.zeros(1), torch.zeros(1, 1))
        tensor([1.3863])
    """
    scores = torch.cat([at_least_float32(positive)[:, None], at_least_float32(negatives)], dim=1)
    log_total = scores.logsumexp(dim=1, keepdim=True)
    log_h = scores - log_total  # (B, 1 + N)
    # The largest h may round to 1, where log(1 − h) = −inf: 1 − h is then summed from the others.
    largest = torch.zeros_like(scores, dtype=torch.bool).scatter(
        1, scores.argmax(dim=1, keepdim=True), True
    )
    log_others = scores.masked_fill(largest, -torch.inf).logsumexp(dim=1, keepdim=True) - log_total
    log_one_minus_h = torch.where(
        largest, log_others, torch.log1p(-log_h.masked_fill(largest, -torch.inf).exp())
    )
    return -log_h[:, 0] - log_one_minus_h[:, 1:].sum(dim=1)


class NCESoftmax(StreamedEstimator):
    """:func:`nce_softmax` as the engines use it."""

    name = "nce_softmax"
    uses_odds = True

    def from_scores(self, positive: Tensor, negatives: Tensor, constant: NormConstant) -> Tensor:
        """See :func:`nce_softmax`."""
        return nce_softmax(positive, negatives)

    def from_sums(
        self, sums: DrawnSums, positive: Tensor, positive_rows: Tensor, constant: NormConstant
    ) -> tuple[Tensor, Tensor]:
        """Compute :func:`nce_softmax`; the engine reads each drawn row m_k once, or twice.

        The gradient is Σ o_k·m_k + (1 − Σ o_k)(Σ h_k·m_k + h_0·m_0) − m_0, with o = h/(1 − h). The
        softmax gives the denominator of h, with which the odds are sums of −log(1 − h_k) and o_k.

        The largest negative, "top", is kept apart: its h may come near 1, so that o_top is large.
        Its o_top·(m_top − Σ h_k·m_k − h_0·m_0) is h_top·(m_top − mean of all others), where the
        others have the softmax weights exp(s − log_others): nothing large is subtracted from
        something large. Below, Σ o_k is over all negatives but the top.
        """
        softmax = sums.softmax()
        log_total, log_others, h_positive, h_top, h_rest = softmax.with_positive(positive)
        log_rest = softmax.log_rest()
        value, odds, gradient = sums.odds(log_total, softmax.top_index)
        value = log_total - positive + value + log_total - log_others
        positive_weight = h_positive * (1 - odds) - h_top * torch.exp(positive - log_others) - 1
        rest_weight = h_rest * (1 - odds) - h_top * torch.exp(log_rest - log_others)
        top_weight = h_top * (2 - odds)
        gradient = gradient + top_weight[..., None] * softmax.top_row
        gradient = gradient + rest_weight[..., None] * softmax.rest_mean()
        return value, gradient + positive_weight[..., None] * positive_rows
