"""Three estimators of the contrastive loss, as functions of scores divided by the temperature.

Every function takes ``positive`` ``(B,)`` and ``negatives`` ``(B, N)``, scores s/τ of one data
point against its own memory row and against N others, and returns ``(B,)``: the sum over the
negatives, one value per data point. All is computed in log space, in float32 or wider whatever the
inputs' type and autocast are.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import softplus


def nce(positive: Tensor, negatives: Tensor, norm_constant: Tensor, num_rows: int) -> Tensor:
    """Noise-contrastive estimation as in Wu et al. 2018 (arXiv 1805.01978, Eq. 4–7).

    With p_k = exp(s_k/τ) / Z and uniform noise P_n = 1/|D|, the posterior that item k is data is
    h_k = p_k / (p_k + N·P_n), and the loss −log h_pos − Σ log(1 − h_k).

    Args:
        positive: ``(B,)`` scores of the own rows, over τ.
        negatives: ``(B, N)`` scores of the drawn rows, over τ.
        norm_constant: scalar Z > 0, the partition constant.
        num_rows: |D|, the number of images.

    Returns:
        ``(B,)`` float32 (float64 for float64 inputs).

    Example:
        >>> # p = 1, N·P_n = 1/2: h = 2/3 on both sides, −log(2/3) − log(1/3) = 1.5041
        >>> nce(torch.zeros(1), torch.zeros(1, 1), torch.tensor(1.0), num_rows=2)
        tensor([1.5041])
    """
    positive, negatives = _widened(positive), _widened(negatives)
    noise = negatives.shape[1] / num_rows  # N·P_n
    shift = torch.log(norm_constant * noise).to(positive.dtype)
    # h_k = sigmoid(s_k/τ − log Z − log N·P_n), so −log h = softplus(−x), −log(1 − h) = softplus(x)
    return softplus(shift - positive) + softplus(negatives - shift).sum(dim=1)


def nce_softmax(positive: Tensor, negatives: Tensor) -> Tensor:
    """Eq. 3–4 as printed: h is the softmax over the positive and the N negatives of a row.

    Args:
        positive: ``(B,)`` scores of the own rows, over τ.
        negatives: ``(B, N)`` scores of the drawn rows, over τ.

    Returns:
        ``(B,)`` −log h_pos − Σ log(1 − h_k); finite whatever the scores are.

    Example:
        >>> # two equal scores: h = 1/2 for both, 2·log 2 = 1.3863
        >>> nce_softmax(torch.zeros(1), torch.zeros(1, 1))
        tensor([1.3863])
    """
    scores = torch.cat([_widened(positive)[:, None], _widened(negatives)], dim=1)
    log_total = scores.logsumexp(dim=1, keepdim=True)
    log_h = scores - log_total
    # The largest h may round to 1, where log(1 − h) = −inf: 1 − h is then summed from the others.
    largest = torch.zeros_like(scores, dtype=torch.bool).scatter(
        1, scores.argmax(dim=1, keepdim=True), True
    )
    log_others = scores.masked_fill(largest, -torch.inf).logsumexp(dim=1, keepdim=True) - log_total
    log_one_minus_h = torch.where(
        largest, log_others, torch.log1p(-log_h.masked_fill(largest, -torch.inf).exp())
    )
    return -log_h[:, 0] - log_one_minus_h[:, 1:].sum(dim=1)


def info_nce(positive: Tensor, negatives: Tensor) -> Tensor:
    """−log h_pos of Eq. 3's softmax: cross-entropy with the own row as the class.

    Args:
        positive: ``(B,)`` scores of the own rows, over τ.
        negatives: ``(B, N)`` scores of the drawn rows, over τ.

    Returns:
        ``(B,)``.

    Example:
        >>> info_nce(torch.zeros(1), torch.zeros(1, 3))  # log 4
        tensor([1.3863])
    """
    positive = _widened(positive)
    scores = torch.cat([positive[:, None], _widened(negatives)], dim=1)
    return scores.logsumexp(dim=1) - positive


def _widened(scores: Tensor) -> Tensor:
    """``scores`` in float32, or wider if they are."""
    return scores.to(torch.promote_types(scores.dtype, torch.float32))
