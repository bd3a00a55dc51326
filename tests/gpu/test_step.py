"""A whole training step: nothing waits for the GPU; half precision; channels-last; resuming."""

import copy

import pytest
import torch

from tests.helpers.gpu_oracle import ESTIMATORS
from tests.helpers.gpu_training import Training


@pytest.fixture(autouse=True)
def exact(monkeypatch):
    """Products and convolutions in full float32, and the same ones in every run."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("placement", ["replicated", "sharded"])
def test_step__never_waits_for_the_gpu(device, estimator, placement, dtype):
    """After the first, which compiles and, without a given Z, reads whether Z is known."""
    training = Training(
        device, estimator=estimator, norm_constant=None, norm_constant_momentum=0.9,
        bank={"placement": placement, "dtype": dtype},
    )  # fmt: skip
    for seed in range(2):
        training.step(seed)
    values = []
    if device == "cuda":
        torch.cuda.set_sync_debug_mode("error")
    try:
        values += [training.step(seed) for seed in range(2, 6)]
    finally:
        if device == "cuda":
            torch.cuda.set_sync_debug_mode("default")
    assert torch.stack(values).isfinite().all()
    assert training.loss.step == 6
    assert training.loss.bank.visited.any()


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision__trains_as_float32_does(device, dtype, estimator):
    """bfloat16, and float16 with a GradScaler; the loss itself is float32."""
    full, half = (Training(device, dtype_, estimator=estimator) for dtype_ in (None, dtype))
    initial = {name: p.detach().clone() for name, p in full.model.named_parameters()}
    for seed in range(5):
        expected, found = full.step(seed), half.step(seed)
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, expected, rtol=0.05, atol=0.05)
    if dtype == torch.float16:
        assert half.scaler.get_scale() == 256  # no step was left out
    for name, parameter in half.model.named_parameters():
        moved = full.model.get_parameter(name) - initial[name]
        assert (parameter - initial[name] - moved).norm() < 0.25 * moved.norm() + 1e-3, name
    rows = half.loss.bank.rows
    torch.testing.assert_close(rows.norm(dim=1), torch.ones_like(rows[:, 0]))


def test_channels_last__gives_the_same_training(device):
    found = [Training(device, channels_last=last) for last in (False, True)]
    for seed in range(3):
        contiguous, last = (training.step(seed) for training in found)
        torch.testing.assert_close(last, contiguous, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("placement", ["replicated", "sharded"])
def test_gpu__trains_as_the_cpu_does(device, placement):
    """The same draws, losses and bank within float32's rounding, over a few steps."""
    here, there = (
        Training(d, norm_constant=None, bank={"placement": placement}) for d in (device, "cpu")
    )
    for seed in range(4):
        torch.testing.assert_close(here.step(seed).cpu(), there.step(seed), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(here.loss.bank.rows.cpu(), there.loss.bank.rows, rtol=0, atol=1e-3)
    assert torch.equal(here.loss.bank.visited.cpu(), there.loss.bank.visited)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_resume__goes_on_to_the_bit(device, estimator, tmp_path):
    whole, first = (Training(device, estimator=estimator, norm_constant=None) for _ in range(2))
    expected = [whole.step(seed) for seed in range(6)]
    for seed in range(3):
        first.step(seed)
    torch.save(copy.deepcopy(first.state()), tmp_path / "state.pt")
    again = Training(device, estimator=estimator, norm_constant=None)
    again.load(torch.load(tmp_path / "state.pt", map_location="cpu", weights_only=True))
    found = [again.step(seed) for seed in range(3, 6)]
    assert torch.equal(torch.stack(found), torch.stack(expected[3:]))
    assert torch.equal(again.loss.bank.rows, whole.loss.bank.rows)
    assert torch.equal(again.loss.bank.visited, whole.loss.bank.visited)
