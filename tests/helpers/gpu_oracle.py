"""Eq. 5 in float64 on any device, one image at a time, from the package's public names alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn.functional import normalize

from pirl_plugin import draw_negatives, info_nce, nce, nce_softmax

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from pirl_plugin import PIRLLoss

ESTIMATORS = ("nce", "nce_softmax", "info_nce")


def make_outputs(terms: int, batch: int, dim: int, device: str, seed: int = 0) -> list[Tensor]:
    """The heads' outputs, ``(B, D)`` each, that get a gradient."""
    generator = torch.Generator().manual_seed(seed)
    made = torch.randn(terms, batch, dim, generator=generator)
    return [output.to(device).requires_grad_() for output in made]


def oracle(
    loss: PIRLLoss,
    outputs: Sequence[Tensor],
    rows: Tensor,
    estimator: str,
    temperature: float,
    num_negatives: int,
    negatives: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The value of ``loss(outputs, rows, negatives)`` and its gradient, before either is computed.

    Args:
        loss: whose bank, step and Z are used; its terms have equal weights.
        outputs: ``(B, D)`` each.
        rows: ``(B,)`` int64, all valid.
        estimator: its estimator.
        temperature: its τ.
        num_negatives: its N.
        negatives: ``(B, N)``; by default those that it draws, with seed 0.

    Returns:
        A scalar, and ``(T, B, D)``, float64.
    """
    table, num_rows = loss.bank.rows, loss.bank.num_rows
    doubles = torch.stack([output.detach().double() for output in outputs]).requires_grad_()
    total = torch.zeros((), dtype=torch.float64, device=table.device)
    for image, row in enumerate(rows):  # memory is that of one image's rows
        if negatives is not None:
            drawn = negatives[image]
        else:
            drawn = draw_negatives(row[None].cpu(), num_rows, num_negatives, 0, loss.step)[0]
        unit = normalize(doubles[:, image], dim=1)  # (T, D)
        positive = unit @ table[row].double() / temperature
        scores = unit @ table[drawn.to(table.device)].double().T / temperature  # (T, N)
        value = {
            "nce": lambda p, s: nce(p, s, loss.norm_constant, num_rows),
            "nce_softmax": nce_softmax,
            "info_nce": info_nce,
        }[estimator](positive, scores).mean() / len(rows)
        value.backward()
        total += value.detach()
    assert doubles.grad is not None
    return total, doubles.grad


def check_against_oracle(
    loss: PIRLLoss,
    outputs: Sequence[Tensor],
    rows: Tensor,
    estimator: str,
    temperature: float,
    num_negatives: int,
    negatives: Tensor | None = None,
) -> None:
    """The loss and its gradient are the oracle's, to float32's precision beside the largest."""
    expected, slope = oracle(loss, outputs, rows, estimator, temperature, num_negatives, negatives)
    value = loss(outputs, rows, negatives)
    value.backward()
    found = torch.stack([output.grad for output in outputs])  # type: ignore[misc]
    torch.testing.assert_close(value.detach().double(), expected, rtol=2e-5, atol=1e-5)
    scale = slope.abs().max()
    torch.testing.assert_close(found.double() / scale, slope / scale, rtol=1e-3, atol=2e-5)
