"""Several processes give what one process gives on the joined batch: loss, gradients, bank."""

from types import SimpleNamespace

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

from pirl_plugin.losses.pirl_loss import PIRLLoss
from pirl_plugin.memory import MemoryBank
from pirl_plugin.vissl.hooks.memory_bank import MemoryBankHook
from tests.helpers.processes import run_in_processes
from tests.helpers.two_heads import DIM, TwoHeads

ROWS, BATCH, STEPS = 50, 12, 3


def train(rank, world_size, settings):
    """A few steps on this rank's share of each batch; loss, gradients and bank."""
    loss = PIRLLoss(ROWS, embedding_dim=DIM, num_negatives=7, **settings)
    if rank > 0 and loss.bank.persistent:
        loss.bank.rows.mul_(-1)  # rank 0's bank must win
    model = TwoHeads()
    wrapped = DistributedDataParallel(model) if world_size > 1 else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    task = SimpleNamespace(
        loss=loss, train=True, datasets={"train": range(ROWS)}, device=torch.device("cpu"),
        config={"SEED_VALUE": 0},
    )  # fmt: skip
    hook = MemoryBankHook()
    hook.on_start(task)
    values = []
    generator = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        images = torch.randn(BATCH, 6, generator=generator)
        target = torch.randint(0, ROWS, (BATCH,), generator=generator)
        target[1] = target[10]  # a repeated row, on two ranks
        target[[0, 2, 3]] = -1  # invalid images, unevenly spread
        negatives = torch.randint(0, ROWS, (BATCH, 7), generator=generator)
        mine = slice(rank * BATCH // world_size, (rank + 1) * BATCH // world_size)
        output = wrapped(images[mine])
        task.last_batch = SimpleNamespace(
            sample={"target": target[mine]}, target=target[mine], model_output=output
        )
        hook.on_forward(task)
        given = negatives[mine] if settings.get("given_draw", False) else None
        value = loss(output, target[mine], given)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        hook.on_update(task)
        values.append(value.detach())
    gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in model.parameters()]
    bank = loss.bank.lookup(torch.arange(ROWS))
    return torch.stack(values), gradients, bank, loss.norm_constant


def train_with_given_draw(rank, world_size, settings):
    """The same with a draw handed in, which replicated and sharded banks must agree on."""
    return train(rank, world_size, _GivenDraw(settings))


class _GivenDraw(dict):
    """Settings that also say, to ``train`` alone, to hand a draw in."""

    def get(self, key, default=None):
        return True if key == "given_draw" else super().get(key, default)


def assert_equal_to_one_process(results, expected):
    values = torch.stack([result[0] for result in results]).mean(dim=0)
    torch.testing.assert_close(values, expected[0], rtol=1e-5, atol=1e-5)
    for _, gradients, bank, constant in results:
        for mine, joined in zip(gradients, expected[1], strict=True):
            torch.testing.assert_close(mine, joined, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(bank, expected[2], rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(constant, expected[3], rtol=1e-5, atol=0, equal_nan=True)
        assert torch.equal(bank, results[0][2])


@pytest.mark.parametrize("world_size", [2, 3])
@pytest.mark.parametrize("estimator", ["nce", "nce_softmax"])
def test_processes__equal_one_process_on_the_joined_batch(world_size, estimator):
    settings = {"estimator": estimator}
    results = run_in_processes(train, world_size, settings)
    assert_equal_to_one_process(results, train(0, 1, settings))


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_processes__train_with_a_head_that_no_term_uses(weight):
    settings = {"lambda_invariance": weight, "estimator": "info_nce"}
    results = run_in_processes(train, 2, settings)
    expected = train(0, 1, settings)
    assert_equal_to_one_process(results, expected)
    unused = expected[1][:2] if weight == 0 else expected[1][2:]
    assert all((gradient == 0).all() for gradient in unused)


@pytest.mark.parametrize("world_size", [2, 3])
def test_sharded__equals_replicated_given_the_same_draw(world_size, monkeypatch):
    settings = {"estimator": "nce", "norm_constant": 60.0}
    expected = train_with_given_draw(0, 1, settings)
    sharded = {**settings, "bank": {"placement": "sharded"}}
    results = run_in_processes(train_from_replicated_rows, world_size, sharded)
    assert_equal_to_one_process(results, expected)


def train_from_replicated_rows(rank, world_size, settings):
    """``train_with_given_draw``, from the initial rows of a replicated bank."""
    from pirl_plugin.losses import pirl_loss

    make_bank = pirl_loss.make_bank

    def filled(config, seed):
        bank = make_bank(config, seed)
        bank.fill(MemoryBank(ROWS, DIM).rows, torch.ones(ROWS).bool())
        return bank

    pirl_loss.make_bank = filled
    return train_with_given_draw(rank, world_size, settings)
