"""What the loss saves, and whose checkpoints it takes back."""

import logging

import pytest
import torch

from pirl_plugin.benchmark.vissl_loss import vissl_loss
from pirl_plugin.losses.pirl_loss import PIRLLoss

ROWS, DIM = 30, 8


def make_loss(**settings):
    config = {"num_train_samples": ROWS, "embedding_dim": DIM, "num_negatives": 5}
    return PIRLLoss.from_config({**config, **settings})


def test_load__lets_the_configuration_win_and_says_so_once(caplog):
    state = make_loss(temperature=0.07, bank={"momentum": 0.5}, norm_constant=80.0).state_dict()
    loss = make_loss(temperature=0.1, bank={"momentum": 0.9}, norm_constant=70.0)
    with caplog.at_level(logging.WARNING):
        loss.load_state_dict(state)
    (message,) = [record.getMessage() for record in caplog.records]
    assert "temperature: 0.07 → 0.1" in message
    assert "bank.momentum: 0.5 → 0.9" in message
    assert "num_negatives" not in message
    assert loss.config.temperature == 0.1
    assert loss.bank.momentum == 0.9
    assert loss.norm_constant == 70.0


def test_load__says_nothing_where_nothing_differs(caplog):
    with caplog.at_level(logging.WARNING):
        make_loss().load_state_dict(make_loss().state_dict())
    assert caplog.records == []


def vissl_state():
    theirs = vissl_loss(ROWS, DIM, num_negatives=5, norm_constant=123.0)
    return theirs.state_dict(), theirs.nce_average.memory


@pytest.mark.parametrize("placement", ["replicated", "sharded"])
def test_load__takes_the_bank_of_vissls_own_loss(placement):
    state, memory = vissl_state()
    loss = make_loss(bank={"placement": placement})
    loss.load_state_dict(state)
    torch.testing.assert_close(loss.bank.own(torch.arange(ROWS)), memory)
    assert loss.norm_constant == 123.0
    output = [torch.randn(2, DIM) for _ in range(2)]
    assert loss(output, torch.tensor([0, 1])).isfinite()
    assert loss.norm_constant == 123.0  # known: not estimated again


def test_load__refuses_vissls_bank_of_another_data_set():
    state, _ = vissl_state()
    with pytest.raises(ValueError, match=r"bank is \(30, 8\), this run's is \(31, 8\)"):
        make_loss(num_train_samples=31).load_state_dict(state)


def test_load__moves_a_replicated_bank_into_shards_and_says_what_it_cannot_do():
    replicated, sharded = make_loss(), make_loss(bank={"placement": "sharded", "seed": 1})
    sharded.load_state_dict(replicated.state_dict())
    assert torch.equal(sharded.bank.own(torch.arange(ROWS)), replicated.bank.rows)
    assert "bank.rows" not in sharded.state_dict()  # saved beside, not by rank 0 alone
    with pytest.raises(ValueError, match=r"holds no memory bank.*placement to sharded"):
        replicated.load_state_dict(sharded.state_dict())
