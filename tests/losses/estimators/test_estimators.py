"""The estimators against a float64 loop over Eq. 3–4, and against numbers worked out by hand."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import pirl_plugin


def loop_nce(positive, negatives, norm_constant, num_rows):
    """Wu et al. 2018, term by term."""
    losses = []
    for s_pos, s_neg in zip(positive, negatives, strict=True):
        noise = len(s_neg) / num_rows
        p = torch.exp(s_pos) / norm_constant
        loss = -torch.log(p / (p + noise))
        for s in s_neg:
            p = torch.exp(s) / norm_constant
            loss = loss - torch.log(1 - p / (p + noise))
        losses.append(loss)
    return torch.stack(losses)


def loop_softmax(positive, negatives, with_negatives):
    """Eq. 3, and Eq. 4 if ``with_negatives``, term by term."""
    losses = []
    for s_pos, s_neg in zip(positive, negatives, strict=True):
        total = torch.exp(s_pos) + sum(torch.exp(s) for s in s_neg)
        loss = -torch.log(torch.exp(s_pos) / total)
        if with_negatives:
            for s in s_neg:
                loss = loss - torch.log(1 - torch.exp(s) / total)
        losses.append(loss)
    return torch.stack(losses)


def scores(batch, count, scale=5.0):
    generator = torch.Generator().manual_seed(batch * 100 + count)
    positive = torch.randn(batch, generator=generator, dtype=torch.float64) * scale
    negatives = torch.randn(batch, count, generator=generator, dtype=torch.float64) * scale
    return positive.requires_grad_(), negatives.requires_grad_()


@pytest.mark.parametrize(("batch", "count"), [(1, 1), (1, 5), (4, 1), (3, 17)])
@pytest.mark.parametrize("name", ["nce", "nce_softmax", "info_nce"])
def test_estimators__agree_with_the_loop_in_value_and_gradient(name, batch, count):
    constant = torch.tensor(37.5, dtype=torch.float64)
    ours, loops = scores(batch, count), scores(batch, count)
    if name == "nce":
        value = pirl_plugin.nce(*ours, constant, num_rows=1000)
        expected = loop_nce(*loops, constant, num_rows=1000)
    else:
        value = getattr(pirl_plugin, name)(*ours)
        expected = loop_softmax(*loops, with_negatives=name == "nce_softmax")
    torch.testing.assert_close(value, expected, rtol=1e-9, atol=1e-9)
    value.sum().backward()
    expected.sum().backward()
    for mine, theirs in zip(ours, loops, strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-9, atol=1e-9)


def test_nce__by_hand():
    # Z = 2, |D| = 8, N = 2: noise N/|D| = 1/4. p_pos = 1/2, p_neg = (1/2, 1).
    # h = p / (p + 1/4): 2/3, 2/3, 4/5 → −log(2/3) − log(1/3) − log(1/5) = 3.1135
    value = pirl_plugin.nce(
        torch.tensor([0.0]), torch.tensor([[0.0, math.log(2)]]), torch.tensor(2.0), num_rows=8
    )
    assert value.item() == pytest.approx(math.log(3 / 2) + math.log(3) + math.log(5), abs=1e-6)


def test_nce_softmax__by_hand():
    # exp(s) = 2 against 1 and 1: h = 1/2, 1/4, 1/4 → −log(1/2) − 2·log(3/4) = 1.2685
    value = pirl_plugin.nce_softmax(torch.tensor([math.log(2)]), torch.zeros(1, 2))
    assert value.item() == pytest.approx(math.log(2) + 2 * math.log(4 / 3), abs=1e-6)


@settings(max_examples=60, deadline=None)
@given(
    batch=st.integers(1, 4),
    count=st.integers(1, 9),
    scale=st.floats(1e-3, 1e4),
    seed=st.integers(0, 10_000),
)
def test_estimators__are_finite_for_extreme_scores(batch, count, scale, seed):
    generator = torch.Generator().manual_seed(seed)
    positive = (torch.randn(batch, generator=generator) * scale).requires_grad_()
    negatives = (torch.randn(batch, count, generator=generator) * scale).requires_grad_()
    for value in (
        pirl_plugin.nce(positive, negatives, torch.tensor(1e6), num_rows=100_000),
        pirl_plugin.nce_softmax(positive, negatives),
        pirl_plugin.info_nce(positive, negatives),
    ):
        assert value.shape == (batch,)
        assert value.isfinite().all()
        assert (value >= -1e-4 * scale).all()
        grads = torch.autograd.grad(value.sum(), (positive, negatives), retain_graph=True)
        assert all(grad.isfinite().all() for grad in grads)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_estimators__compute_in_float32_whatever_the_scores(dtype):
    positive, negatives = torch.ones(2, dtype=dtype), torch.zeros(2, 3, dtype=dtype)
    for value in (
        pirl_plugin.nce(positive, negatives, torch.tensor(3.0), num_rows=10),
        pirl_plugin.nce_softmax(positive, negatives),
        pirl_plugin.info_nce(positive, negatives),
    ):
        assert value.dtype == torch.float32
