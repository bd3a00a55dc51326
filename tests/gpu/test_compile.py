"""``torch.compile`` of the model, of the loss, and of both at once."""

import pytest
import torch

from tests.helpers.gpu_training import Training

BACKENDS = {"cuda": "inductor", "cpu": "aot_eager"}  # the first takes a CPU minutes


@pytest.fixture
def device(slow_device):
    return slow_device


@pytest.fixture(autouse=True)
def compiler(monkeypatch):
    """A compiler that has compiled nothing, and full float32."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("parts", [("model",), ("loss",), ("model", "loss")], ids="+".join)
@pytest.mark.parametrize("scores", ["auto", "triton"])
def test_compiled__trains_as_it_does_uncompiled(device, parts, scores):
    plain, compiled = (Training(device, scores=scores) for _ in range(2))
    backend = BACKENDS[device]
    if "model" in parts:
        compiled.run = torch.compile(compiled.model, backend=backend)
    if "loss" in parts:
        compiled.criterion = torch.compile(compiled.loss, backend=backend)
    for seed in range(3):
        found, expected = compiled.step(seed), plain.step(seed)
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(compiled.loss.bank.rows, plain.loss.bank.rows, rtol=0, atol=1e-3)
    assert compiled.loss.step == 3


def test_compiled__function_may_hold_the_loss(device):
    """A step's forward in one compiled function: the loss is called as it is."""
    plain, whole = (Training(device) for _ in range(2))

    @torch.compile(backend=BACKENDS[device])
    def forward(images, rows):
        embeddings = whole.model.f(whole.model.trunk(images))
        return whole.loss([embeddings * 1.5 + images.mean(), embeddings], rows)

    images, rows = torch.randn(4, 3, 16, 16, device=device), torch.arange(4, device=device)
    value = forward(images, rows)
    value.backward()
    embeddings = plain.model.f(plain.model.trunk(images))
    expected = plain.loss([embeddings * 1.5 + images.mean(), embeddings], rows)
    expected.backward()
    torch.testing.assert_close(value, expected, rtol=1e-3, atol=1e-3)
    for found, other in zip(whole.model.f.parameters(), plain.model.f.parameters(), strict=True):
        torch.testing.assert_close(found.grad, other.grad, rtol=1e-2, atol=1e-4)
