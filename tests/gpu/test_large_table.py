"""A bank of more than 2³¹ elements: no offset is cut to 32 bits."""

import pytest
import torch

from pirl_plugin import PIRLLoss
from tests.helpers.gpu_oracle import ESTIMATORS, check_against_oracle, make_outputs

COUNT, TEMPERATURE = 300, 0.07


@pytest.fixture(scope="module")
def large():
    """Makes the bank once a device: on a GPU of 4.3 GB, in half a minute."""
    made = {}

    def make(device):
        if device not in made:
            dim = 1024 if device == "cuda" else 16
            num_rows = 2**31 // dim + 1000 if device == "cuda" else 100
            made[device] = PIRLLoss(
                num_rows, embedding_dim=dim, num_negatives=COUNT, scores="triton",
                norm_constant=2.0 * num_rows, bank={"dtype": "bfloat16"},
            ).to(device)  # fmt: skip
        return made[device]

    yield make
    made.clear()


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_rows__at_the_end_are_read(device, large, estimator, given):
    loss = large(device)
    num_rows, dim = loss.bank.rows.shape
    # One estimator's loss would make its own bank: the same equations on one.
    loss.estimator = PIRLLoss(2, embedding_dim=1, num_negatives=1, estimator=estimator).estimator
    rows = torch.tensor([num_rows - 1, num_rows - 2, 0], device=device)
    outputs = make_outputs(2, 3, dim, device)
    negatives = torch.randint(num_rows - 50, num_rows, (3, COUNT)).to(device) if given else None
    check_against_oracle(loss, outputs, rows, estimator, TEMPERATURE, COUNT, negatives)


def test_rows__at_the_end_are_moved(device, large):
    bank = large(device).bank
    last = len(bank.rows) - 1
    before = bank.rows[last].clone()
    bank.update(torch.tensor([last], device=device), -before[None].float() + 1)
    assert not torch.equal(bank.rows[last], before)
    torch.testing.assert_close(bank.rows[last].float().norm().item(), 1.0, rtol=0, atol=0.02)
