"""Noise-contrastive estimation as in Wu et al. 2018 (arXiv 1805.01978, Eq. 4–7).

:func:`nce`, the equation on scores, runs in the engine ``plain``: where the batch shares its draw,
or the bank is small. ``blocked`` and ``triton``, which the paper's sizes use, run
:meth:`NCE.from_sums`. ``tests/losses/estimators/test_agreement.py`` ties the two together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import softplus

from pirl_plugin.losses.estimators.base import NormConstant, StreamedEstimator
from pirl_plugin.utils.precision import at_least_float32

if TYPE_CHECKING:
    from pirl_plugin.losses.engines.sums import DrawnSums


def nce(positive: Tensor, negatives: Tensor, norm_constant: Tensor, num_rows: int) -> Tensor:
    """Compute the loss of Wu et al. 2018 with a partition constant Z.

    With p_k = exp(s_k/τ) / Z and uniform noise P_n = 1/|D|, the posterior that item k is data is
    h_k = p_k / (p_k + N·P_n), and the loss −log h_pos − Σ log(1 − h_k). All is computed in log
    space, in float32 or wider whatever the type of the scores and autocast are.

    Args:
        positive: ``(B,)`` scores of the images' own rows, over τ.
        negatives: ``(B, N)`` scores of the drawn rows, over τ.
        norm_constant: scalar Z > 0, the partition constant.
        num_rows: |D|, the number of images.

    Returns:
        ``(B,)`` float32 (float64 for float64 inputs): the sum over the negatives.

    Example:
        >>> import torch
        >>> # p = 1, N·P_n = 1/2: h = 2/3 on both sides, −log(2/3) − log(1/3) = 1.5041
        >>> nce(torch.zeros(1), torch.zeros(1, 1), torch.tensor(1.0), num_rows=2)
        tensor([1.5041])
    """
    positive, negatives = at_least_float32(positive), at_least_float32(negatives)
    shift = _log_noise(norm_constant, num_rows, negatives.shape[1]).to(positive.dtype)
    # h_k = sigmoid(s_k/τ − c), c = log(Z·N/|D|), so −log h = softplus(c − s_k/τ) and
    # −log(1 − h) = softplus(s_k/τ − c)
    return softplus(shift - positive) + softplus(negatives - shift).sum(dim=1)


class NCE(StreamedEstimator):
    """:func:`nce` as the engines use it."""

    name = "nce"
    uses_norm_constant = True

    def from_scores(self, positive: Tensor, negatives: Tensor, constant: NormConstant) -> Tensor:
        """See :func:`nce`."""
        return nce(positive, negatives, constant.value, constant.num_rows)

    def from_sums(
        self, sums: DrawnSums, positive: Tensor, positive_rows: Tensor, constant: NormConstant
    ) -> tuple[Tensor, Tensor]:
        """Compute :func:`nce` with one reading of the drawn rows m_k.

        With c = log(Z·N/|D|), the gradient is Σ σ(s_k − c)·m_k − σ(c − s_0)·m_0.
        """
        shift = _log_noise(*constant, sums.num_negatives).to(positive.dtype)
        value, gradient = sums.sigmoid(shift)  # (T, B), (T, B, D)
        value += softplus(shift - positive)
        positive_weight = -torch.sigmoid(shift - positive)
        return value, gradient + positive_weight[..., None] * positive_rows


def sum_of_exponentials(log_sums: Tensor, valid: Tensor, num_negatives: int) -> Tensor:
    """Sum exp(s/τ) over the negatives of a batch's valid images, to estimate Z.

    Z = |D| · mean of exp(s/τ) over the negatives of the first batch on all ranks (Wu et al. 2018,
    Sec. 3.2). The positive is no noise sample and stays out.

    Args:
        log_sums: ``(T, B)``, log Σ exp(s/τ) over an image's negatives.
        valid: ``(B,)`` bool.
        num_negatives: N.

    Returns:
        ``(2,)`` float64: the sum, and the number of its terms.
    """
    total = log_sums.double().exp().masked_fill(~valid, 0).sum()
    number = valid.sum().double() * (len(log_sums) * num_negatives)
    return torch.stack([total, number])


def _log_noise(norm_constant: Tensor, num_rows: int, num_negatives: int) -> Tensor:
    """C = log(Z·N·P_n), with P_n = 1/|D|: the score s/τ at which h is 1/2."""
    return torch.log(norm_constant * (num_negatives / num_rows))
