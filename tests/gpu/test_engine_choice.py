"""``scores: auto`` on a GPU: Triton, or ``blocked`` after a warning where it cannot compile."""

import os
import subprocess
import sys

import pytest
import torch

from pirl_plugin import PIRLLoss
from pirl_plugin.losses.engines.triton_probe import triton_runs, why_not
from tests.helpers.gpu_oracle import ESTIMATORS, make_outputs

TRAIN = """
import logging, sys, torch
logging.basicConfig(format="WARNED %(message)s", level=logging.WARNING)
from pirl_plugin import PIRLLoss
device = sys.argv[1]
loss = PIRLLoss(5000, embedding_dim=16, num_negatives=64).to(device)
outputs = [torch.randn(4, 16, device=device, requires_grad=True) for _ in range(2)]
rows = torch.arange(4, device=device)
for step in range(3):
    value = loss(outputs, rows)
    value.backward()
    loss.update(rows, outputs[-1])
print("TRAINED", loss.step, bool(value.isfinite()))
"""


@pytest.fixture
def tf32():
    """Matrix products in TF32, as training scripts ask for; the choice is made again."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    for function in (triton_runs, why_not):
        function.cache_clear()
    yield
    torch.set_float32_matmul_precision(before)
    for function in (triton_runs, why_not):
        function.cache_clear()


@pytest.mark.usefixtures("tf32")
def test_auto__is_triton_where_tf32_is_allowed(device):
    """What the kernel's sums are compared with must not be in TF32."""
    if device == "cuda":
        assert why_not(torch.device("cuda", torch.cuda.current_device())) is None
    test_auto__is_triton(device, "nce")


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_auto__is_triton(device, estimator):
    """To the bit what ``triton`` gives, and not what another engine gives."""
    expected = {"cuda": "triton", "cpu": "blocked"}[device]
    found = {}
    for scores in ("auto", "triton", "blocked"):
        loss = PIRLLoss(
            20_000, embedding_dim=64, num_negatives=300, estimator=estimator, norm_constant=4e4,
            scores=scores,
        ).to(device)  # fmt: skip
        outputs = make_outputs(2, 4, 64, device)
        loss(outputs, torch.arange(4, device=device)).backward()
        found[scores] = torch.stack([output.grad for output in outputs])
    assert torch.equal(found["auto"], found[expected])
    other = {"triton": "blocked", "blocked": "triton"}[expected]
    assert not torch.equal(found["auto"], found[other])


def train(device, **environment):
    inherited = {name: value for name, value in os.environ.items() if name != "CC"}
    done = subprocess.run(
        [sys.executable, "-c", TRAIN, device], capture_output=True, text=True,
        env={**inherited, **environment},
    )  # fmt: skip
    assert "TRAINED 3 True" in done.stdout, done.stderr
    return [line for line in done.stderr.splitlines() if line.startswith("WARNED")]


def test_auto__trains_without_a_c_compiler(slow_device, tmp_path):
    """An empty cache, and no compiler to be found: one warning, and the run goes on."""
    hidden = {"PATH": str(tmp_path), "TRITON_CACHE_DIR": str(tmp_path / "cache")}
    warnings = train(slow_device, **hidden)
    if slow_device == "cuda":
        (warning,) = warnings
        assert "LOSS.pirl_loss.scores = auto: expected Triton to run, but it failed" in warning
    else:
        assert warnings == []


def test_auto__warns_of_nothing_where_triton_runs(slow_device):
    assert train(slow_device) == []


def test_memory__of_the_loss_is_not_that_of_the_scores(device):
    """At the paper's sizes, at most 64 MB; all drawn rows would be 524 MB."""
    if device == "cpu":
        pytest.skip(
            "counts the GPU's memory; tests/losses/engines/test_choice.py watches the CPU's"
        )
    loss = PIRLLoss(1_281_167, num_negatives=32_000, norm_constant=2.9e6).to(device)
    outputs, rows = make_outputs(2, 32, 128, device), torch.arange(32, device=device)
    loss(outputs, rows).backward()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    loss(outputs, rows).backward()
    loss.update(rows, outputs[-1])
    assert torch.cuda.max_memory_allocated() - before < 64e6
