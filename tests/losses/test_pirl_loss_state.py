"""What the loss keeps from step to step: Z, bank, seed; and checkpoints of it."""

import dataclasses
import inspect

import pytest
import torch
from torch.nn.functional import normalize

from pirl_plugin.losses.config import PIRLLossConfig
from pirl_plugin.losses.pirl_loss import PIRLLoss
from pirl_plugin.memory import MemoryBank
from tests.helpers.loss_cases import (
    DIM,
    NEGATIVES,
    ROWS,
    embeddings,
    every_form,  # noqa: F401
    make_loss,
)


def test_norm_constant__is_the_mean_over_the_negatives_of_the_first_batch():
    loss = make_loss()
    target = torch.tensor([1, -1, 2])
    negatives = torch.tensor([[5] * NEGATIVES, [6] * NEGATIVES, [8] * NEGATIVES])
    output = embeddings(3)
    loss(output, target, negatives)
    scores = [normalize(o)[[0, 2]] @ loss.bank.rows.double()[[5, 8]].T / 0.07 for o in output]
    expected = ROWS * torch.stack([s.diagonal().exp() for s in scores]).mean()
    torch.testing.assert_close(loss.norm_constant, expected, rtol=1e-6, atol=0)
    loss(embeddings(3, seed=9), target, negatives)
    torch.testing.assert_close(loss.norm_constant, expected, rtol=1e-6, atol=0)


def test_update__moves_the_bank_and_counts_the_step():
    loss, output = make_loss(), embeddings(3, dtype=torch.float32)
    expected = MemoryBank(ROWS, DIM)
    rows = torch.tensor([4, -1, 9])
    moved = expected.update(rows, output[1])
    loss.update(rows, output[1])
    assert torch.equal(loss.bank.rows, expected.rows)
    assert torch.equal(loss.last_step.moved, moved)
    assert loss.step == 1
    with pytest.raises(ValueError, match="row 40 is outside"):
        loss.update(torch.tensor([0, 1, ROWS]), output[1])
    with torch.no_grad():
        output[1][2, 0] = torch.nan
    with pytest.raises(FloatingPointError, match=r"rows \[9\]"):
        loss.update(rows, output[1])
    assert torch.equal(loss.bank.rows, expected.rows)
    assert loss.step == 1


def test_seed__is_given_or_resolved_or_the_checkpoints():
    given, unset = make_loss(bank={"seed": 3}), make_loss()
    given.resolve_seed(7)
    assert given.seed == 3
    assert torch.equal(unset.bank.rows, MemoryBank(ROWS, DIM, seed=0).rows)  # no host: 0
    unset.resolve_seed(7)
    unset.resolve_seed(8)  # it has one now
    assert unset.seed == 7
    assert torch.equal(unset.bank.rows, MemoryBank(ROWS, DIM, seed=7).rows)
    resumed = make_loss()
    resumed.load_state_dict(unset.state_dict())
    resumed.resolve_seed(9)
    assert resumed.seed == 7
    assert torch.equal(resumed.bank.rows, unset.bank.rows)


def test_signature__has_the_defaults_of_the_configuration():
    keys = dict(inspect.signature(PIRLLoss).parameters)
    assert [*keys] == sorted(keys, key=[f.name for f in dataclasses.fields(PIRLLossConfig)].index)
    assert len(keys) == len(dataclasses.fields(PIRLLossConfig))
    for key, parameter in keys.items():
        if key not in ("num_train_samples", "bank"):
            assert parameter.default == getattr(PIRLLossConfig(), key), key


@pytest.mark.parametrize("estimator", ["nce", "nce_softmax", "info_nce"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_state__continues_to_the_bit(estimator, dtype, tmp_path):
    settings = {"estimator": estimator, "norm_constant_momentum": 0.9}
    loss = make_loss(bank={"seed": 1, "dtype": dtype}, **settings)
    again = make_loss(bank={"dtype": dtype}, **settings)  # the seed is the checkpoint's
    target = torch.tensor([3, 0, 39, 7, 8])

    def step(one, seed):
        output = embeddings(seed=seed, dtype=torch.float32)
        value = one(output, target)
        value.backward()
        one.update(target, output[1])
        return value.detach(), output[0].grad, one.bank.rows.clone(), one.norm_constant.clone()

    for seed in range(3):
        step(loss, seed)
    torch.save(loss.state_dict(), tmp_path / "loss.pt")
    again.load_state_dict(torch.load(tmp_path / "loss.pt", weights_only=True))
    assert again.step == 3
    for seed in (7, 8):
        for a, b in zip(step(loss, seed), step(again, seed), strict=True):
            assert torch.equal(a.nan_to_num(), b.nan_to_num())
    assert torch.equal(loss.bank.visited, again.bank.visited)


def test_state__of_another_data_set_is_refused():
    state = make_loss().state_dict()
    other = PIRLLoss(41, embedding_dim=DIM)
    with pytest.raises(ValueError, match=r"bank is \(40, 8\), this run's is \(41, 8\).*same data"):
        other.load_state_dict(state)


def test_sharded__refuses_more_negatives_than_a_shard_has_without_replacement():
    sharded = {"bank": {"placement": "sharded"}, "replacement": False}
    make_loss(**sharded, num_negatives=ROWS - 1)
    with pytest.raises(ValueError, match="without replacement"):
        make_loss(**sharded, num_negatives=ROWS)


def test_norm_constant__moves_if_asked():
    loss = make_loss(norm_constant_momentum=0.9)
    target = torch.arange(5)
    negatives = torch.randint(0, ROWS, (5, NEGATIVES), generator=torch.Generator().manual_seed(6))
    loss(embeddings(), target, negatives)
    first = loss.norm_constant.clone()
    fresh = make_loss()
    fresh(embeddings(seed=3), target, negatives)
    loss(embeddings(seed=3), target, negatives)
    torch.testing.assert_close(loss.norm_constant, 0.9 * first + 0.1 * fresh.norm_constant)
