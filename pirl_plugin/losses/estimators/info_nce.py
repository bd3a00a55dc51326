"""InfoNCE: the negative log-likelihood of the positive under Eq. 3's softmax.

:func:`info_nce`, the equation on scores, runs in the engine ``plain``: where the batch shares its
draw, or the bank is small. ``blocked`` and ``triton``, which the paper's sizes use, run
:meth:`InfoNCE.from_sums`. ``tests/losses/estimators/test_agreement.py`` ties the two together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pirl_plugin.losses.estimators.base import NormConstant, StreamedEstimator
from pirl_plugin.utils.precision import at_least_float32

if TYPE_CHECKING:
    from pirl_plugin.losses.engines.sums import DrawnSums


def info_nce(positive: Tensor, negatives: Tensor) -> Tensor:
    """Compute −log h_pos of Eq. 3's softmax: cross-entropy with the image's own row as the class.

    Args:
        positive: ``(B,)`` scores of the images' own rows, over τ.
        negatives: ``(B, N)`` scores of the drawn rows, over τ.

    Returns:
        ``(B,)`` float32 or wider.

    Example:
        >>> import torch
        >>> info_nce(torch.zeros(1), torch.zeros(1, 3))  # log 4
        tensor([1.3863])
    """
    positive = at_least_float32(positive)
    scores = torch.cat([positive[:, None], at_least_float32(negatives)], dim=1)
    return scores.logsumexp(dim=1) - positive


class InfoNCE(StreamedEstimator):
    """:func:`info_nce` as the engines use it."""

    name = "info_nce"

    def from_scores(self, positive: Tensor, negatives: Tensor, constant: NormConstant) -> Tensor:
        """See :func:`info_nce`."""
        return info_nce(positive, negatives)

    def from_sums(
        self, sums: DrawnSums, positive: Tensor, positive_rows: Tensor, constant: NormConstant
    ) -> tuple[Tensor, Tensor]:
        """Compute :func:`info_nce` with one reading of the drawn rows m_k.

        The gradient is Σ h_k·m_k + h_0·m_0 − m_0.
        """
        softmax = sums.softmax()
        log_total, _, h_positive, h_top, h_rest = softmax.with_positive(positive)
        gradient = h_top[..., None] * softmax.top_row
        gradient = gradient + h_rest[..., None] * softmax.rest_mean()
        return log_total - positive, gradient + (h_positive - 1)[..., None] * positive_rows
