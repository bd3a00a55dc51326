"""Two ranks with CUDA tensors are one process on the joined batch: gloo on a GPU, NCCL on two."""

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

from pirl_plugin import PIRLLoss
from tests.helpers.gpu_oracle import ESTIMATORS
from tests.helpers.processes import run_in_processes
from tests.helpers.two_heads import DIM, TwoHeads

ROWS, BATCH, STEPS, COUNT = 40, 12, 4, 33


@pytest.fixture
def device(slow_device):
    return slow_device


def train(rank, world_size, name, settings):
    """A few steps on this rank's share of each batch: losses, parameters and bank, on the CPU."""
    device = torch.device(name)
    if name == "cuda":
        device = torch.device("cuda", rank % torch.cuda.device_count())
        torch.cuda.set_device(device)
    scores = {"cuda": "triton", "cpu": "blocked"}[name]
    loss = PIRLLoss(ROWS, embedding_dim=DIM, num_negatives=COUNT, scores=scores, **settings)
    loss = loss.to(device)
    model = TwoHeads().to(device)
    run = DistributedDataParallel(model) if world_size > 1 else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(1)
    values = []
    mine = slice(rank * BATCH // world_size, (rank + 1) * BATCH // world_size)
    for _ in range(STEPS):
        images = torch.randn(BATCH, 6, generator=generator)[mine].to(device)
        rows = torch.randint(0, ROWS, (BATCH,), generator=generator)
        rows[1] = rows[10]  # a repeated row, on two ranks
        rows[[0, 2, 3]] = -1  # invalid images, unevenly spread
        rows = rows[mine].to(device)
        output = run(images)
        value = loss(output, rows)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        loss.update(rows, output[-1])
        values.append(value.detach().cpu())
    parameters = [parameter.detach().cpu() for parameter in model.parameters()]
    bank = loss.bank.lookup(torch.arange(ROWS, device=device)).cpu()
    return torch.stack(values), parameters, bank, loss.norm_constant.cpu()


def check(found, expected):
    values = torch.stack([rank[0] for rank in found]).mean(dim=0)
    torch.testing.assert_close(values, expected[0], rtol=1e-4, atol=1e-4)
    for _, parameters, bank, constant in found:
        for mine, joined in zip(parameters, expected[1], strict=True):
            torch.testing.assert_close(mine, joined, rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(bank, expected[2], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(constant, expected[3], rtol=1e-5, atol=0, equal_nan=True)
        assert torch.equal(bank, found[0][2])


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_gloo__equals_one_process_on_the_joined_batch(device, estimator):
    settings = {"estimator": estimator}
    found = run_in_processes(train, 2, device, settings)
    check(found, train(0, 1, device, settings))


@pytest.mark.parametrize("placement", ["replicated", "sharded"])
def test_gloo__is_the_same_on_the_cpu(device, placement):
    """Each device with its own engine; a sharded bank draws from each rank's own rows."""
    settings = {"estimator": "nce", "bank": {"placement": placement}}
    found, expected = (run_in_processes(train, 2, name, settings) for name in (device, "cpu"))
    for mine, other in zip(found, expected, strict=True):
        torch.testing.assert_close(mine[0], other[0], rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(mine[2], other[2], rtol=0, atol=1e-3)


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("placement", ["replicated", "sharded"])
def test_nccl__equals_gloo(placement):
    settings = {"estimator": "nce", "bank": {"placement": placement}}
    runs = (
        run_in_processes(train, 2, "cuda", settings, backend=backend)
        for backend in ("nccl", "gloo")
    )
    for mine, other in zip(*runs, strict=True):
        torch.testing.assert_close(mine[0], other[0], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(mine[2], other[2], rtol=1e-4, atol=1e-4)
