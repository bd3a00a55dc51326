"""Triton kernels compared with tensor operations: compiled on a GPU, interpreted elsewhere."""

import importlib
import logging
import sys

import pytest
import torch

from pirl_plugin.method import scores
from pirl_plugin.method.loss import PIRLLoss

pytest.importorskip("triton", reason="the kernels need the package triton")
kernels = importlib.import_module("pirl_plugin.method.triton_kernels")


@pytest.fixture
def case(request, device):
    """Return table, drawn rows, queries and weights for the given sizes."""
    outputs, batch, count, dim, rows, dtype = request.param
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(rows, dim, generator=generator).to(dtype)
    drawn = torch.randint(rows, (batch, count), generator=generator)
    queries = torch.randn(batch, outputs, dim, generator=generator)
    weights = torch.randn(batch, outputs, count, generator=generator)
    return [tensor.to(device) for tensor in (table, drawn, queries, weights)]


# Includes a partly filled last tile, an odd number of outputs, and a width not a power of two.
CASES = [
    (2, 3, 37, 128, 50, torch.float32),
    (1, 2, 130, 100, 9, torch.float32),
    (3, 2, 70, 16, 1000, torch.bfloat16),
    (2, 1, 5, 128, 20, torch.float16),
]


@pytest.mark.parametrize("case", CASES, indirect=True)
def test_score_drawn__matches_product_with_gathered_rows(case):
    table, drawn, queries, _ = case
    expected = torch.einsum("btd,bnd->btn", queries.double(), table[drawn].double())
    found = kernels.score_drawn(table, drawn, queries)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", CASES, indirect=True)
def test_sum_drawn__matches_weighted_sum_deterministically(case):
    table, drawn, _, weights = case
    expected = torch.einsum("btn,bnd->btd", weights.double(), table[drawn].double())
    found = kernels.sum_drawn(table, drawn, weights)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=2e-5)
    assert torch.equal(found, kernels.sum_drawn(table, drawn, weights))


def test_kernels__give_nan_only_for_out_of_range_rows(device):
    table = torch.ones(5, 16, device=device)
    drawn = torch.tensor([[0, 4, 5], [1, -1, 2], [0, 1, 2]], device=device)
    found = kernels.score_drawn(table, drawn, torch.ones(3, 1, 16, device=device))
    is_nan = torch.tensor([[False, False, True], [False, True, False], [False, False, False]])
    assert torch.equal(found[:, 0].isnan().cpu(), is_nan)


def test_probe__accepts_these_kernels(device):
    assert kernels.multiplies_correctly(device)


@pytest.mark.parametrize("estimator", ["nce", "nce_softmax", "info_nce"])
def test_loss__is_the_same_without_kernels(device, estimator, monkeypatch):
    def values(found):
        monkeypatch.setattr(scores, "triton_kernels", lambda device: found)
        loss = PIRLLoss(60, embedding_dim=16, num_negatives=33, estimator=estimator).to(device)
        generator = torch.Generator().manual_seed(1)
        f, g = (
            torch.randn(4, 16, generator=generator).to(device).requires_grad_() for _ in range(2)
        )
        value = loss(f, g, torch.tensor([3, 59, -1, 7], device=device))
        value.backward()
        return value.detach(), f.grad, g.grad, torch.tensor(loss.norm_constant or 0.0)

    for mine, other in zip(values(kernels), values(None), strict=True):
        torch.testing.assert_close(mine, other, rtol=2e-5, atol=1e-6)


def test_loss__warns_once_without_triton(monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, kernels.__name__, None)  # importing it fails
    device = torch.device("cuda", 7)
    with caplog.at_level(logging.WARNING):
        assert scores.triton_kernels(device) is None
        assert scores.triton_kernels(device) is None
    assert caplog.text.count("Install the triton package and a C compiler") == 1
    scores.triton_kernels.cache_clear()
