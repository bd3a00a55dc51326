"""A fourth estimator, as CONTRIBUTING describes: one file, and one line in ``ESTIMATORS``.

Decoupled contrastive learning (Yeh et al., arXiv 2110.06848): InfoNCE without the positive in the
denominator, log Σ exp(s_k/τ) − s_0/τ over the negatives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pirl_plugin.losses.estimators.base import Estimator, NormConstant, StreamedEstimator

if TYPE_CHECKING:
    from torch import Tensor

    from pirl_plugin.losses.engines.sums import DrawnSums


class PlainDecoupled(Estimator):
    """The equation alone: for ``scores: plain``."""

    name = "dcl_plain"

    def from_scores(self, positive: Tensor, negatives: Tensor, constant: NormConstant) -> Tensor:
        return negatives.logsumexp(dim=1) - positive


class Decoupled(PlainDecoupled, StreamedEstimator):
    """With the sums that the engines have, for all of them."""

    name = "dcl"

    def from_sums(
        self, sums: DrawnSums, positive: Tensor, positive_rows: Tensor, constant: NormConstant
    ) -> tuple[Tensor, Tensor]:
        softmax = sums.softmax()
        log_sum = softmax.log_sum()
        top, rest = (s.sub(log_sum).exp()[..., None] for s in (softmax.top, softmax.log_rest()))
        gradient = top * softmax.top_row + rest * softmax.rest_mean() - positive_rows
        return log_sum - positive, gradient
