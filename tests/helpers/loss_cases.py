"""Reference for the loss: Eq. 3–5 in float64, one image and one negative at a time."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pirl_plugin.method.loss import PIRLLoss

ROWS, DIM, NEGATIVES = 40, 8, 11


def make_loss(**settings) -> PIRLLoss:
    return PIRLLoss(
        **{"num_train_samples": ROWS, "embedding_dim": DIM, "num_negatives": NEGATIVES, **settings}
    )


def embeddings(batch=5, seed=0, dtype=torch.float64) -> list[Tensor]:
    """Return f and g."""
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(batch, DIM, generator=generator, dtype=dtype).requires_grad_() for _ in range(2)
    ]


def loop_nce(positive: Tensor, negatives: Tensor, z: float, rows: int) -> Tensor:
    """Wu et al. 2018, Eq. 4–7."""
    noise = len(negatives) / rows
    p = positive.exp() / z
    total = -torch.log(p / (p + noise))
    for s in negatives:
        p = s.exp() / z
        total = total - torch.log(1 - p / (p + noise))
    return total


def loop_info_nce(positive: Tensor, negatives: Tensor, z: float, rows: int) -> Tensor:
    """−log of Eq. 3."""
    return -torch.log(positive.exp() / (positive.exp() + sum(s.exp() for s in negatives)))


def loop_nce_softmax(positive: Tensor, negatives: Tensor, z: float, rows: int) -> Tensor:
    """Eq. 3 and 4."""
    denominator = positive.exp() + sum(s.exp() for s in negatives)
    total = loop_info_nce(positive, negatives, z, rows)
    for s in negatives:
        total = total - torch.log(1 - s.exp() / denominator)
    return total


# L_NCE per image from scores over τ (a scalar and ``(N,)``), Z and |D|, as printed in the paper.
LOOPS = {"nce": loop_nce, "nce_softmax": loop_nce_softmax, "info_nce": loop_info_nce}


def loop_loss(loss: PIRLLoss, f: Tensor, g: Tensor, index: Tensor, negatives: Tensor) -> Tensor:
    """Eq. 5 over the valid images."""
    bank, config = loss.bank.rows.double(), loss.config
    z = loss.norm_constant or math.nan
    total, count = torch.zeros((), dtype=torch.float64), 0
    for v_f, v_g, row, drawn in zip(f.double(), g.double(), index, negatives, strict=True):
        if row < 0:
            continue
        count += 1
        for weight, v in ((config.lambda_invariance, v_g), (1 - config.lambda_invariance, v_f)):
            scores = bank[torch.cat([row[None], drawn])] @ normalize(v, dim=0) / config.temperature
            value = LOOPS[config.estimator](scores[0], scores[1:], z, len(bank))
            total = total + weight * value
    return total / count
