"""What the loss saves, and whose checkpoints it takes back."""

import logging

import pytest
import torch

from pirl_plugin.benchmark.loss import vissl_loss
from pirl_plugin.losses.pirl_loss import PIRLLoss

ROWS, DIM = 30, 8


def make_loss(**settings):
    config = {"num_train_samples": ROWS, "embedding_dim": DIM, "num_negatives": 5}
    return PIRLLoss(**{**config, **settings})


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


ONE_KEY_CHANGED = {
    "estimator": "info_nce",
    "lambda_invariance": 0.25,
    "temperature": 0.1,
    "num_negatives": 6,
    "negatives": "per_batch",
    "replacement": False,
    "norm_constant": 70.0,
    "norm_constant_momentum": 0.9,
    "term_weights": [0.5, 0.5],
    "embedding_dim": None,  # another width is refused
    "scores": "plain",
    "bank.momentum": 0.9,
    "bank.placement": "sharded",
    "bank.dtype": "bfloat16",
    "bank.init": "embeddings",
    "bank.seed": 4,
    "bank.overlap": False,
}


@pytest.mark.parametrize("key", ONE_KEY_CHANGED)
def test_load__reports_every_key_that_changed(key, caplog):
    value, (section, _, name) = ONE_KEY_CHANGED[key], key.rpartition(".")
    before = make_loss().hyperparameters()
    assert set(ONE_KEY_CHANGED) == set(before)
    if value is None:
        return
    loss = make_loss(**({"bank": {name: value}} if section else {name: value}))
    with caplog.at_level(logging.WARNING):
        loss.load_state_dict(make_loss().state_dict())
    (message,) = [record.getMessage() for record in caplog.records]
    assert f"{key}: {before[key]} → {value}" in message
    assert message.count("→") == 1


def trained(**settings):
    loss = make_loss(**settings)
    loss([torch.randn(2, DIM, requires_grad=True) for _ in range(2)], torch.tensor([0, 1]))
    return loss


@pytest.mark.parametrize(
    ("before", "now"),
    [({}, {"temperature": 0.5}), ({"norm_constant": 80.0}, {})],
    ids=["another temperature", "null again"],
)
def test_load__estimates_a_z_again_that_does_not_belong_to_the_configuration(before, now, caplog):
    loss = make_loss(**now)
    with caplog.at_level(logging.WARNING):
        loss.load_state_dict(trained(**before).state_dict())
    assert caplog.text.count("Z is estimated again from the next batch") == 1
    assert loss.norm_constant.isnan()
    output = [torch.randn(2, DIM, requires_grad=True) for _ in range(2)]
    loss(output, torch.tensor([0, 1]))
    expected = make_loss(**now)
    expected.bank.rows.copy_(loss.bank.rows)
    expected(output, torch.tensor([0, 1]))
    assert torch.equal(loss.norm_constant, expected.norm_constant)


def test_load__keeps_a_z_that_belongs_to_the_configuration(caplog):
    estimated, loss = trained(), make_loss()
    with caplog.at_level(logging.WARNING):
        loss.load_state_dict(estimated.state_dict())
    assert torch.equal(loss.norm_constant, estimated.norm_constant)
    moved = {"norm_constant": 80.0, "norm_constant_momentum": 0.5}
    before, after = trained(**moved), make_loss(**moved)
    assert before.norm_constant != 80
    after.load_state_dict(before.state_dict())
    assert torch.equal(after.norm_constant, before.norm_constant)
    assert caplog.records == []


def test_load__takes_checkpoints_that_remember_fewer_keys(caplog):
    """Those written before every key was remembered."""
    state = trained(norm_constant=80.0).state_dict()
    remembered = ("estimator", "lambda_invariance", "temperature", "num_negatives")
    remembered += ("bank.momentum", "bank.seed")
    parameters = state["_extra_state"]["hyperparameters"]
    state["_extra_state"]["hyperparameters"] = {key: parameters[key] for key in remembered}
    assert set(state) == {"bank.rows", "bank.visited", "norm_constant", "_extra_state"}
    loss = make_loss()
    with caplog.at_level(logging.WARNING):
        loss.load_state_dict(state)
    assert caplog.records == []
    assert loss.norm_constant == 80
    assert loss.seed == 0


def vissl_state():
    theirs = vissl_loss(ROWS, DIM, num_negatives=5, norm_constant=123.0)
    return theirs.state_dict(), theirs.nce_average.memory


@pytest.mark.parametrize("placement", ["replicated", "sharded"])
def test_load__takes_the_bank_of_vissls_own_loss(placement):
    state, memory = vissl_state()
    loss = make_loss(bank={"placement": placement})
    loss.load_state_dict(state)
    torch.testing.assert_close(loss.bank.lookup(torch.arange(ROWS)), memory)
    assert loss.norm_constant == 123.0
    output = [torch.randn(2, DIM) for _ in range(2)]
    assert loss(output, torch.tensor([0, 1])).isfinite()
    assert loss.norm_constant == 123.0  # known: not estimated again
    loss.resolve_seed(5)  # the checkpoint has no seed, and its rows stay
    torch.testing.assert_close(loss.bank.lookup(torch.arange(ROWS)), memory)


def test_load__estimates_z_again_for_vissls_bank_of_another_temperature(caplog):
    loss = make_loss(temperature=0.2)
    with caplog.at_level(logging.WARNING):
        loss.load_state_dict(vissl_state()[0])
    assert "temperature: 0.07 → 0.2" in caplog.text
    assert loss.norm_constant.isnan()


def test_load__estimates_z_where_vissls_loss_had_none_yet():
    state, _ = vissl_state()
    state["nce_average.params"][2] = -1  # until VISSL's first batch
    loss = make_loss()
    loss.load_state_dict(state)
    assert loss.norm_constant.isnan()
    assert not loss.norm_constant_known


def test_load__makes_vissls_rows_unit_vectors():
    """VISSL averages the ranks' random banks, which leaves rows short."""
    state, memory = vissl_state()
    state["nce_average.memory"] = memory * torch.linspace(0.1, 1, ROWS)[:, None]
    loss = make_loss()
    loss.load_state_dict(state)
    torch.testing.assert_close(loss.bank.rows, memory)


def test_resize__keeps_the_banks_device():
    loss = make_loss().to("meta")
    loss.resize(ROWS + 1)
    assert loss.bank.rows.shape == (ROWS + 1, DIM)
    assert loss.bank.rows.device == loss.bank.visited.device == torch.device("meta")


def test_load__refuses_vissls_bank_of_another_data_set():
    state, _ = vissl_state()
    with pytest.raises(ValueError, match=r"bank is \(30, 8\), this run's is \(31, 8\)"):
        make_loss(num_train_samples=31).load_state_dict(state)


def test_load__moves_a_replicated_bank_into_shards_and_says_what_it_cannot_do():
    replicated, sharded = make_loss(), make_loss(bank={"placement": "sharded", "seed": 1})
    sharded.load_state_dict(replicated.state_dict())
    assert torch.equal(sharded.bank.lookup(torch.arange(ROWS)), replicated.bank.rows)
    assert "bank.rows" not in sharded.state_dict()  # saved beside, not by rank 0 alone
    with pytest.raises(ValueError, match=r"placement = replicated: expected sharded"):
        replicated.load_state_dict(sharded.state_dict())


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("state", [{}, {"fc.weight": torch.ones(2)}])
def test_load__of_something_else_is_named(state, strict):
    with pytest.raises(ValueError, match=r"a state of (nothing|fc\.weight): expected that of a"):
        make_loss().load_state_dict(state, strict=strict)
