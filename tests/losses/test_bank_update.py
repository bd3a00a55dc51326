"""What the memory bank's update takes, and what it refuses."""

import pytest
import torch

from tests.helpers.loss_cases import DIM, ROWS, make_loss
from tests.helpers.loss_cases import embeddings as two_embeddings


@pytest.mark.parametrize("placement", ["replicated", "sharded"])
def test_row_outside_the_bank__moves_none_where_nobody_asks(placement, monkeypatch):
    """As on a GPU, whose values nobody waits for."""
    monkeypatch.setattr("pirl_plugin.losses.bank_update.BankUpdate.check", lambda self: None)
    loss = make_loss(bank={"placement": placement})
    before = loss.bank.rows.clone()
    loss.update(torch.tensor([ROWS + 3, 2 * ROWS]), two_embeddings()[1][:2])
    assert torch.equal(loss.bank.rows, before)


@pytest.mark.parametrize("placement", ["replicated", "sharded"])
@pytest.mark.parametrize(
    ("rows", "embeddings", "says"),
    [
        ([0, 1], torch.ones(2, DIM), "rows is a list: expected int64"),
        (torch.arange(2).int(), torch.ones(2, DIM), "rows is torch.int32: expected int64"),
        (torch.arange(3), torch.ones(2, DIM), r"shape \(2, 8\) for 3 images: .* give the row and"),
        (
            torch.arange(2),
            torch.ones(2, 9),
            r"shape \(2, 9\) for 2 images: .*; make the",
        ),
        (torch.arange(2), torch.ones(DIM), r"of shape \(8,\) for 2 images: expected"),
        (torch.arange(2), torch.ones(2, DIM).long(), "embeddings are torch.int64: expected a tens"),
        (torch.tensor([0, ROWS]), torch.ones(2, DIM), f"row {ROWS} is outside the memory bank"),
    ],
)
def test_update__refuses_what_forward_does(rows, embeddings, says, placement):
    loss = make_loss(bank={"placement": placement})
    before = loss.bank.rows.clone()
    for update in (loss.update, loss.bank.update):
        with pytest.raises(ValueError, match=says):
            update(rows, embeddings)
    assert torch.equal(loss.bank.rows, before)
    assert loss.step == 0
