"""An engine that sums over the drawn rows: no ``(B, N)`` scores, value and gradient in one pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pirl_plugin.losses.estimators.base import Estimator, NormConstant, StreamedEstimator

if TYPE_CHECKING:
    from torch.autograd.function import BackwardCFunction, FunctionCtx

    from pirl_plugin.losses.engines.base import ContrastBatch
    from pirl_plugin.losses.engines.sums import DrawnSums


class StreamedEngine:
    """The sums of ``blocked`` or ``triton``, put together by the estimator.

    Args:
        batch: the batch.
        sums: the class of the sums.
    """

    def __init__(self, batch: ContrastBatch, sums: type[DrawnSums]) -> None:
        self.batch, self.sums = batch, sums

    def log_sums(self) -> Tensor:
        """See :meth:`pirl_plugin.losses.engines.base.Engine.log_sums`."""
        batch = self.batch
        with torch.no_grad():
            queries = batch.queries / batch.temperature
            return self.sums(queries, batch.table, batch.draw).softmax().log_sum()

    def loss(self, estimator: Estimator, constant: NormConstant) -> Tensor:
        """See :meth:`pirl_plugin.losses.engines.base.Engine.loss`.

        Raises:
            TypeError: the estimator has no streamed form.
            RuntimeError: the loss is differentiated twice.
        """
        if not isinstance(estimator, StreamedEstimator):
            raise TypeError(
                f"the estimator {estimator.name} has no streamed form: expected one; set "
                f"LOSS.pirl_loss.scores to plain, or derive it from StreamedEstimator"
            )
        loss: Tensor = _Streamed.apply(
            self.batch.queries, self.batch, self.sums, estimator, constant
        )
        return loss


class _Streamed(torch.autograd.Function):
    """The gradient to the queries is computed with the value, and kept for backward."""

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        queries: Tensor,
        batch: ContrastBatch,
        make_sums: type[DrawnSums],
        estimator: StreamedEstimator,
        constant: NormConstant,
    ) -> Tensor:
        positives = batch.positives.to(queries.dtype)
        queries = queries / batch.temperature
        positive = torch.einsum("tbd,bd->tb", queries, positives)  # s_0 / τ
        parts = make_sums(queries, batch.table, batch.draw).parts(estimator.uses_odds)
        found = [
            estimator.from_sums(sums, positive[:, images], positives[images], constant)
            for images, sums in parts
        ]
        values, gradient = (torch.cat(tensors, dim=1) for tensors in zip(*found, strict=True))
        ctx.save_for_backward(gradient / batch.temperature)
        return values

    @staticmethod
    def backward(
        ctx: BackwardCFunction, *upstream: Tensor
    ) -> tuple[Tensor, None, None, None, None]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "LOSS.pirl_loss.scores = auto, blocked or triton: expected one differentiation, "
                "these keep the first derivative only; set it to plain"
            )
        (gradient,) = ctx.saved_tensors
        return gradient * upstream[0][..., None], None, None, None, None
