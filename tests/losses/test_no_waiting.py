"""Loss and bank never ask a GPU for a value: seen on a CPU, with tensors that have none.

Fake tensors of a CUDA device have shapes and types alone; whatever needs a value raises. The
kernels are not launched. ``tests/gpu/test_step.py`` sees the same on a GPU, backward and optimiser
included.
"""

import pytest
import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from pirl_plugin import PIRLLoss
from pirl_plugin.losses.engines import choice, triton
from pirl_plugin.losses.estimators import ESTIMATORS
from pirl_plugin.memory import draw_negatives

DIM, BATCH = 16, 4


@pytest.fixture
def fake_gpu(monkeypatch):
    monkeypatch.setattr(choice, "triton_runs", lambda device: True)
    monkeypatch.setattr(choice, "why_not", lambda device: None)
    launched = []
    monkeypatch.setattr(
        triton.TritonSums, "_run", lambda self, kernel, *arguments: launched.append(kernel)
    )
    monkeypatch.setattr(triton, "make_draw", empty_draw)
    return launched


def empty_draw(draw):
    """What the draw's kernel fills."""
    shape = (len(draw.rows), draw.num_negatives)
    return torch.empty(shape, dtype=torch.int32, device=draw.rows.device)


def move(loss):
    """Put the loss's tensors on the fake GPU; ``to`` would ask for a real one."""
    for module, name in ((loss, "norm_constant"), (loss.bank, "rows"), (loss.bank, "visited")):
        held = getattr(module, name)
        setattr(module, name, torch.empty(held.shape, dtype=held.dtype, device="cuda"))


@pytest.mark.parametrize("placement", ["replicated", "sharded"])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_loss_and_bank__need_no_value(fake_gpu, estimator, placement):
    loss = PIRLLoss(
        500, embedding_dim=DIM, num_negatives=64, estimator=estimator, norm_constant=900.0,
        norm_constant_momentum=0.9, bank={"placement": placement},
    )  # fmt: skip
    with FakeTensorMode(allow_non_fake_inputs=True):
        move(loss)
        outputs = [torch.empty(BATCH, DIM, device="cuda", requires_grad=True) for _ in range(2)]
        rows = torch.empty(BATCH, dtype=torch.int64, device="cuda")
        assert loss(outputs, rows).device.type == "cuda"
        loss.update(rows, outputs[-1])
        given = torch.empty(BATCH, 9, dtype=torch.int64, device="cuda")
        assert loss(outputs, rows, given).device.type == "cuda"
        with loss.micro_batches(rows) as whole:
            whole.survey(outputs, rows)
            whole.set_norm_constant()
            assert loss(outputs, rows).device.type == "cuda"
    assert loss.step == 1
    assert fake_gpu  # `auto` chose the kernels


@pytest.mark.parametrize("replacement", [True, False])
@pytest.mark.parametrize("per_batch", [True, False])
def test_draw__needs_no_value(replacement, per_batch):
    with FakeTensorMode():
        rows = torch.empty(BATCH, dtype=torch.int64, device="cuda")
        drawn = draw_negatives(
            rows, 500, 64, seed=0, step=0, replacement=replacement, per_batch=per_batch
        )
    assert drawn.shape == (BATCH, 64)


def test_asking_for_a_value__raises():
    with FakeTensorMode(), pytest.raises(DataDependentOutputException):
        bool(torch.empty(1, device="cuda") > 0)
