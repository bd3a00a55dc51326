"""What is said of a loss that is not finite; the launcher's tests see it end a run."""

from types import SimpleNamespace

import pytest
import torch

from pirl_plugin.bank import MemoryBank
from pirl_plugin.vissl.adapters.loss import VISSLPIRLLoss as PIRLLoss
from pirl_plugin.vissl.hooks.finite import FiniteHook

ROWS, DIM = 20, 4


def after_forward(target, output, value):
    """The host's task where it has just waited for the loss."""
    batch = SimpleNamespace(target=target, model_output=output)
    return SimpleNamespace(
        config=SimpleNamespace(LOSS={"name": "pirl_loss"}),
        loss=SimpleNamespace(bank=MemoryBank(ROWS, DIM)),
        last_batch=batch,
        iteration=7,
        losses=[value],
    )


@pytest.mark.parametrize(("weight", "bad"), [(0.5, 1), (1.0, 1), (0.5, 0)])
def test_finite__names_the_row_whose_embedding_is_not(weight, bad):
    """With λ = 1 no term uses f(v_I), which the bank takes all the same."""
    loss = PIRLLoss(ROWS, embedding_dim=DIM, num_negatives=5, lambda_invariance=weight)
    output = [torch.randn(3, DIM, requires_grad=True) for _ in range(2)]
    with torch.no_grad():
        output[bad][2, 0] = torch.nan
    target = torch.tensor([4, -1, 9])
    task = after_forward(target, output, loss(output, target).item())
    with pytest.raises(FloatingPointError, match=r"on rank 0, step 7, rows \[9\]: nothing was"):
        FiniteHook().on_loss_and_meter(task)


def test_finite__names_a_row_outside_the_bank():
    """On a GPU, which is not asked for the rows, the loss of such a batch is NaN."""
    output = [torch.zeros(3, DIM) for _ in range(2)]
    task = after_forward(torch.tensor([4, -1, ROWS]), output, float("nan"))
    with pytest.raises(ValueError, match=r"row 20 is outside the memory bank of 20 rows"):
        FiniteHook().on_loss_and_meter(task)
    task.losses = [1.0]
    FiniteHook().on_loss_and_meter(task)
