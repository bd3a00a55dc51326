"""The estimators against values worked out by hand and against a loop, and a new one."""

import math

import pytest
import torch

from pirl_plugin.estimators import ESTIMATORS, info_nce, nce, nce_softmax, uses_norm_constant
from tests.helpers.loss_cases import embeddings, loop_estimate, make_loss


def test_estimators__by_hand():
    positive, negatives = torch.tensor([math.log(3.0)]), torch.tensor([[0.0, math.log(2.0)]])
    # h = 3/6, 1/6, 2/6: −log h_0 = log 2; −log(1 − h) = log 6/5 and log 3/2
    assert info_nce(positive, negatives).item() == pytest.approx(math.log(2))
    expected = math.log(2) + math.log(6 / 5) + math.log(3 / 2)
    assert nce_softmax(positive, negatives).item() == pytest.approx(expected)
    # Z = 2, |D| = 4, N = 2: N·P_n = 1/2; p = 3/2, 1/2, 1; h = 3/4, 1/2, 2/3
    expected = math.log(4 / 3) + math.log(2) + math.log(3)
    found = nce(positive, negatives, torch.tensor(2.0), num_rows=4)
    assert found.item() == pytest.approx(expected)


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("count", [1, 2, 9])
@pytest.mark.parametrize("temperature", [0.07, 1.0])
def test_estimators__agree_with_a_loop_in_value_and_gradient(name, count, temperature):
    generator = torch.Generator().manual_seed(count)
    scores = torch.rand(3, 1 + count, generator=generator, dtype=torch.float64) * 2 - 1
    scores = (scores / temperature).requires_grad_()
    more = {"norm_constant": torch.tensor(90.0).double(), "num_rows": 40}
    more = more if uses_norm_constant(name) else {}
    found = ESTIMATORS[name](scores[:, 0], scores[:, 1:], **more)
    expected = torch.stack([loop_estimate(name, s[0], s[1:], 90.0, 40) for s in scores])
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    mine, loops = (torch.autograd.grad(v.sum(), scores)[0] for v in (found, expected))
    torch.testing.assert_close(mine, loops, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("top", [0, 1])
def test_estimators__are_finite_where_one_h_rounds_to_1(name, top):
    scores = torch.zeros(1, 5)
    scores[0, top] = 600.0
    scores.requires_grad_()
    more = {"norm_constant": torch.tensor(90.0).double(), "num_rows": 40}
    more = more if uses_norm_constant(name) else {}
    value = ESTIMATORS[name](scores[:, 0], scores[:, 1:], **more)
    value.sum().backward()
    assert value.isfinite()
    assert scores.grad.isfinite().all()


@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimators__compute_half_precision_in_float32(name):
    more = {"norm_constant": torch.tensor(90.0).double(), "num_rows": 40}
    more = more if uses_norm_constant(name) else {}
    scores = torch.randn(2, 5).bfloat16()
    found = ESTIMATORS[name](scores[:, 0], scores[:, 1:], **more)
    assert found.dtype == torch.float32
    assert torch.equal(found, ESTIMATORS[name](scores[:, 0].float(), scores[:, 1:].float(), **more))


def test_a_new_estimator__is_one_function(monkeypatch):
    """Decoupled contrastive learning (Yeh et al., arXiv 2110.06848)."""
    monkeypatch.setitem(
        ESTIMATORS, "dcl", lambda positive, negatives: negatives.logsumexp(1) - positive
    )
    f, g = embeddings()
    value = make_loss(estimator="dcl")(f, g, torch.arange(5))
    value.backward()
    assert value.isfinite()
    assert (f.grad.norm(dim=1) > 0).all()
