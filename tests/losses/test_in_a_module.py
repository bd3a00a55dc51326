"""A loss that is part of another module: of a training loop of one's own, of a LightningModule."""

import io

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from pirl_plugin.losses.pirl_loss import PIRLLoss
from tests.helpers.processes import run_in_processes

ROWS, DIM = 30, 8
SHARDED = {"placement": "sharded"}


def make_loss(**settings):
    return PIRLLoss(ROWS, embedding_dim=DIM, num_negatives=5, **settings)


def step(loss, first=0):
    """A training step on two images; returns its loss."""
    generator = torch.Generator().manual_seed(loss.step)
    output = [torch.randn(2, DIM, generator=generator, requires_grad=True) for _ in range(2)]
    rows = torch.tensor([first, first + 1])
    value = loss(output, rows)
    loss.update(rows, output[-1])
    return value


def trained(**settings):
    loss = make_loss(**settings)
    step(loss)
    return loss


def load_within(loss, state):
    """Load as a module does that has the loss as a part."""
    nn.ModuleList([nn.Linear(2, 2), loss]).load_state_dict(
        nn.ModuleList([nn.Linear(2, 2), state]).state_dict()
    )


@pytest.mark.parametrize("settings", [{}, {"norm_constant_momentum": 0.9}, {"bank": {"seed": 3}}])
def test_load__as_a_part_goes_on_as_the_loss_alone_does(settings):
    before, alone, part = trained(**settings), make_loss(**settings), make_loss(**settings)
    alone.load_state_dict(before.state_dict())
    load_within(part, before)
    assert part.bank.loaded
    assert torch.equal(part.norm_constant, before.norm_constant)
    for _ in range(3):
        assert torch.equal(step(part), step(alone))
    assert torch.equal(part.norm_constant, alone.norm_constant)
    assert torch.equal(part.bank.rows, alone.bank.rows)


def test_load__as_a_part_lets_the_configuration_win():
    part = make_loss(norm_constant=80.0)
    load_within(part, trained(norm_constant=70.0))
    assert part.norm_constant == 80


def test_load__as_a_part_deals_the_rows_of_a_replicated_bank():
    before, part = trained(), make_loss(bank=SHARDED)
    load_within(part, before)
    assert torch.equal(part.bank.lookup(torch.arange(ROWS)), before.bank.rows)


def test_load__as_a_part_refuses_what_is_not_its_own():
    with pytest.raises(ValueError, match=r"memory bank is \(30, 8\), this run's is \(31, 8\)"):
        load_within(PIRLLoss(31, embedding_dim=DIM, num_negatives=5), trained())
    # Weights of the other parts alone are none of its business.
    whole = nn.ModuleList([nn.Linear(2, 2), make_loss()])
    missing, _ = whole.load_state_dict({"0.bias": torch.zeros(2)}, strict=False)
    assert {key for key in missing if key.startswith("1.")} == {
        f"1.{key}" for key in whole[1].state_dict()
    }


def test_load__of_a_sharded_loss_waits_for_its_shards(tmp_path):
    before, after = trained(bank=SHARDED), make_loss(bank=SHARDED)
    before.bank.save(tmp_path / "bank")
    after.load_state_dict(before.state_dict())
    with pytest.raises(RuntimeError, match=r"expected a call of bank.load\(FOLDER\) after"):
        step(after)
    after.bank.load(tmp_path / "bank")
    assert torch.equal(step(after), step(before))
    # So does the state of a later step: what the bank holds now is of another one.
    after.load_state_dict(before.state_dict())
    with pytest.raises(RuntimeError, match=r"expected a call of bank.load\(FOLDER\) after"):
        step(after)


@pytest.mark.parametrize("cast", ["half", "bfloat16", "float", "double"])
def test_cast__leaves_bank_and_norm_constant_as_they_are(cast):
    loss = trained(norm_constant_momentum=0.9)
    before = loss.norm_constant.clone()
    getattr(nn.ModuleList([loss]), cast)()
    assert torch.equal(loss.norm_constant, before)
    assert loss.bank.rows.dtype == torch.float32
    assert step(loss).isfinite()
    assert loss.norm_constant.dtype == torch.float64


def test_to__moves_bank_and_norm_constant():
    loss = make_loss(norm_constant=80.0).to("meta")
    held = loss.bank.rows, loss.bank.visited, loss.norm_constant
    assert {tensor.device.type for tensor in held} == {"meta"}


def _within_ddp(rank, world_size, placement):
    class Whole(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.head = nn.Linear(DIM, DIM)
            self.loss = make_loss(bank={"placement": placement}, norm_constant=80.0)

        def forward(self, images, rows):
            return self.loss([self.head(images), self.head(images)], rows)

    whole = Whole()
    before = whole.loss.bank.lookup(torch.arange(ROWS)).clone()
    wrapped = DistributedDataParallel(whole)
    received = sum(buffer.nbytes for buffer in whole.buffers())
    for _ in range(2):
        wrapped(torch.ones(2, DIM), torch.tensor([rank, rank + 2])).backward()
    return torch.equal(whole.loss.bank.lookup(torch.arange(ROWS)), before), received


@pytest.mark.parametrize("placement", ["replicated", "sharded"])
def test_ddp__leaves_the_bank_of_each_rank_alone(placement):
    # The one buffer that is sent is Z.
    assert run_in_processes(_within_ddp, 2, placement) == [(True, 8)] * 2


def _made_early(rank, world_size):
    bank = make_loss(bank=SHARDED).bank
    bank._ranks = 1  # as one that was made before the process group
    messages = []
    for method in (bank.lookup, lambda rows: bank.start_exchange(rows, torch.ones(2, DIM))):
        with pytest.raises(RuntimeError) as refused:
            method(torch.tensor([1, 2]))
        messages.append(str(refused.value))
    return messages


def test_sharded__made_before_the_process_group_is_refused():
    for messages in run_in_processes(_made_early, 2):
        for message in messages:
            assert message.startswith(
                "the sharded memory bank was made for 1 ranks, and there are 2: make the loss after"
            )


def _uneven(rank, world_size, placement):
    loss = make_loss(bank={"placement": placement}, norm_constant=80.0)
    rows = torch.arange(4 - 2 * rank) + 10 * rank
    embeddings = torch.randn(len(rows), DIM)
    try:
        loss.update(rows, embeddings)
    except ValueError as error:
        return str(error)
    broken = embeddings.clone()
    broken[0] = torch.nan
    try:
        loss.update(rows, broken if rank == 1 else embeddings)
    except FloatingPointError as error:
        return str(error), int(loss.bank.visited.sum())


def test_update__of_uneven_batches_is_refused_where_the_bank_is_replicated():
    for rank, message in enumerate(run_in_processes(_uneven, 2, "replicated")):
        assert message.startswith(
            f"a batch of {4 - 2 * rank} images on rank {rank} and 6 on all 2: expected as many"
        )


def test_update__of_uneven_batches_moves_a_sharded_bank():
    found = run_in_processes(_uneven, 2, "sharded")
    assert sum(moved for _, moved in found) == 6
    for message, _ in found:
        assert message.startswith("embeddings f(v_I) are not finite on rank 1, step 1, rows [10]:")


def test_state__of_numbers_of_numpy_is_loaded_safely():
    loss = make_loss(
        temperature=np.float64(0.1),
        norm_constant=np.float32(80),
        term_weights=np.array([0.25, 0.75]),
        bank={"seed": np.int64(4), "placement": np.str_("replicated")},
    )
    file = io.BytesIO()
    torch.save(loss.state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    kept = state["_extra_state"]["hyperparameters"]
    assert (kept["temperature"], kept["term_weights"], kept["bank.seed"]) == (0.1, [0.25, 0.75], 4)
