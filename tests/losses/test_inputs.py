"""Rows that are given to the loss."""

import pytest
import torch

from pirl_plugin.losses.inputs import find_outside
from tests.helpers.loss_cases import NEGATIVES, ROWS, embeddings, every_form, make_loss  # noqa: F401


@pytest.mark.parametrize("target", [ROWS, ROWS + 3])
def test_row_outside_the_bank__makes_the_loss_nan_where_nobody_asks(target, monkeypatch):
    """As on a GPU, whose values nobody waits for; the bank's own update is tested beside it."""
    monkeypatch.setattr("pirl_plugin.losses.inputs.check_rows", lambda rows, number: None)
    loss = make_loss(norm_constant=90.0)
    before = loss.bank.rows.clone()
    assert loss([one[:2] for one in embeddings()], torch.tensor([7, target])).isnan()
    assert loss.last_step.valid.tolist() == [True, False]
    assert torch.equal(loss.bank.rows, before)


def test_row_left_out__leaves_the_loss_finite():
    loss = make_loss(norm_constant=90.0)
    negatives = torch.arange(NEGATIVES).repeat(2, 1)
    output = [one[:2] for one in embeddings()]
    value = loss(output, torch.tensor([7, -1]), negatives)
    alone = loss([one[:1] for one in output], torch.tensor([7]), negatives[:1])
    torch.testing.assert_close(value, alone)


def test_find_outside__leaves_one_draw_for_the_batch_one():
    """The engines read its rows once for the whole batch."""
    shared = torch.arange(7).expand(3, -1)
    outside, negatives = find_outside(torch.tensor([8, 9, 10]), shared, 40)
    assert not outside
    assert torch.equal(negatives, shared)
    assert negatives.stride(0) == 0
