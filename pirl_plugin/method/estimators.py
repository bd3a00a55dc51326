"""Estimators for Eq. 4: functions of scores, for any contrastive loss over drawn negatives.

Each takes scores s/τ: ``positive`` ``(B,)`` compares images with their own rows in the memory bank,
``negatives`` ``(B, N)`` with the drawn rows. It returns ``(B,)``, in float32 or wider, and autograd
computes its gradient. :mod:`pirl_plugin.method.scores` runs it.

A loss accepts any such function as its ``estimator``. Add it to :data:`ESTIMATORS` to select it by
name in a config. If it has parameters ``norm_constant`` and ``num_rows``, the loss estimates Z and
passes both.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import softplus

from pirl_plugin.system.failures import Refused, type_and_shape


def nce(positive: Tensor, negatives: Tensor, norm_constant: float, num_rows: int) -> Tensor:
    """Compute the noise-contrastive loss of Wu et al. 2018 (arXiv 1805.01978, Eq. 4–7).

    With p_k = exp(s_k/τ) / Z and uniform noise P_n = 1/|D|, the posterior that item k is data is
    h_k = p_k / (p_k + N·P_n), and the loss is −log h_pos − Σ log(1 − h_k).

    Args:
        positive: ``(B,)`` scores against the images' own rows, over τ.
        negatives: ``(B, N)`` scores against the drawn rows, over τ.
        norm_constant: Z > 0, the partition constant.
        num_rows: |D|, the number of images.

    Returns:
        ``(B,)``: the sum over the negatives.

    Example:
        >>> import torch
        >>> # p = 1, N·P_n = 1/2: h = 2/3 on both sides, −log(2/3) − log(1/3) = 1.5041
        >>> nce(torch.zeros(1), torch.zeros(1, 1), norm_constant=1.0, num_rows=2)
        tensor([1.5041])
    """
    positive, negatives = _checked(positive, negatives)
    # h_k = sigmoid(s_k/τ − c), with c = log(Z·N·P_n): −log h_k = softplus(c − s_k/τ) and
    # −log(1 − h_k) = softplus(s_k/τ − c).
    c = math.log(norm_constant * negatives.shape[1] / num_rows)
    return softplus(c - positive) + softplus(negatives - c).sum(dim=1)


def nce_softmax(positive: Tensor, negatives: Tensor) -> Tensor:
    """Compute Eq. 3–4 as printed: h is the softmax over the positive and the N negatives.

    Args:
        positive: ``(B,)`` scores against the images' own rows, over τ.
        negatives: ``(B, N)`` scores against the drawn rows, over τ.

    Returns:
        ``(B,)`` −log h_pos − Σ log(1 − h_k), finite for all finite scores.

    Example:
        >>> import torch
        >>> # two equal scores: h = 1/2 for both, 2·log 2 = 1.3863
        >>> nce_softmax(torch.zeros(1), torch.zeros(1, 1))
        tensor([1.3863])
    """
    positive, negatives = _checked(positive, negatives)
    scores = torch.cat([positive[:, None], negatives], dim=1)
    log_total = scores.logsumexp(dim=1, keepdim=True)
    log_h = scores - log_total  # (B, 1 + N)
    # The largest h may round to 1, giving log(1 − h) = −inf, so 1 − h is the sum of the others.
    largest = torch.zeros_like(scores, dtype=torch.bool).scatter(
        1, scores.argmax(dim=1, keepdim=True), True
    )
    log_others = scores.masked_fill(largest, -torch.inf).logsumexp(dim=1, keepdim=True) - log_total
    log_one_minus_h = torch.where(
        largest, log_others, torch.log1p(-log_h.masked_fill(largest, -torch.inf).exp())
    )
    return -log_h[:, 0] - log_one_minus_h[:, 1:].sum(dim=1)


def info_nce(positive: Tensor, negatives: Tensor) -> Tensor:
    """Compute −log h_pos with Eq. 3's softmax: cross-entropy with the image's own row as the class.

    Args:
        positive: ``(B,)`` scores against the images' own rows, over τ.
        negatives: ``(B, N)`` scores against the drawn rows, over τ.

    Returns:
        ``(B,)``.

    Example:
        >>> import torch
        >>> info_nce(torch.zeros(1), torch.zeros(1, 3))  # log 4
        tensor([1.3863])
    """
    positive, negatives = _checked(positive, negatives)
    scores = torch.cat([positive[:, None], negatives], dim=1)
    return scores.logsumexp(dim=1) - positive


ESTIMATORS: dict[str, Callable[..., Tensor]] = {
    "nce": nce,
    "nce_softmax": nce_softmax,
    "info_nce": info_nce,
}
"""Estimators by name."""


def uses_norm_constant(estimator: Callable[..., Tensor]) -> bool:
    """Return whether a function has a required parameter ``norm_constant``, the constant Z."""
    parameter = inspect.signature(estimator).parameters.get("norm_constant")
    return parameter is not None and parameter.default is parameter.empty


def _checked(positive: Tensor, negatives: Tensor) -> tuple[Tensor, Tensor]:
    """Return the scores in float32 or wider; reject shapes other than ``(B,)`` and ``(B, N)``."""
    are_tensors = isinstance(positive, Tensor) and isinstance(negatives, Tensor)
    if not are_tensors or negatives.ndim != 2 or positive.shape != negatives.shape[:1]:
        raise Refused(
            f"positive is {type_and_shape(positive)} and negatives is {type_and_shape(negatives)}: "
            f"expected tensors of shape (B,) and (B, N)"
        )
    return at_least_float32(positive), at_least_float32(negatives)


def at_least_float32(values: Tensor) -> Tensor:
    """Return ``values`` in float32, or unchanged if they are wider."""
    return values.to(torch.promote_types(values.dtype, torch.float32))
