"""Estimators compared with hand-computed values and a loop, and a custom estimator."""

import math

import pytest
import torch

from pirl_plugin.method.estimators import (
    ESTIMATORS,
    info_nce,
    nce,
    nce_softmax,
    uses_norm_constant,
)
from tests.helpers.loss_cases import LOOPS, embeddings, loop_loss, make_loss

pytestmark = pytest.mark.tensors


def constants(name):
    return {"norm_constant": 90.0, "num_rows": 40} if uses_norm_constant(ESTIMATORS[name]) else {}


def test_estimators__match_hand_computed_values():
    positive, negatives = torch.tensor([math.log(3.0)]), torch.tensor([[0.0, math.log(2.0)]])
    # h = 3/6, 1/6, 2/6: −log h_0 = log 2; −log(1 − h) = log 6/5 and log 3/2
    assert info_nce(positive, negatives).item() == pytest.approx(math.log(2))
    expected = math.log(2) + math.log(6 / 5) + math.log(3 / 2)
    assert nce_softmax(positive, negatives).item() == pytest.approx(expected)
    # Z = 2, |D| = 4, N = 2: N·P_n = 1/2; p = 3/2, 1/2, 1; h = 3/4, 1/2, 2/3
    expected = math.log(4 / 3) + math.log(2) + math.log(3)
    found = nce(positive, negatives, 2.0, num_rows=4)
    assert found.item() == pytest.approx(expected)


@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize(("count", "temperature"), [(1, 0.07), (9, 0.07), (2, 1.0)])
def test_estimators__match_loop_in_value_and_gradient(name, count, temperature):
    generator = torch.Generator().manual_seed(count)
    scores = torch.rand(3, 1 + count, generator=generator, dtype=torch.float64) * 2 - 1
    scores = (scores / temperature).requires_grad_()
    found = ESTIMATORS[name](scores[:, 0], scores[:, 1:], **constants(name))
    expected = torch.stack([LOOPS[name](s[0], s[1:], 90.0, 40) for s in scores])
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    mine, loops = (torch.autograd.grad(v.sum(), scores)[0] for v in (found, expected))
    torch.testing.assert_close(mine, loops, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", LOOPS)
def test_estimators__refuse_column_of_positives(name):
    """Broadcasting would compare each image with every other image's negatives."""
    with pytest.raises(
        ValueError, match=r"positive is .* \(3, 1\) .*: expected .* \(B,\) and \(B, N"
    ):
        ESTIMATORS[name](torch.zeros(3, 1), torch.zeros(3, 5), **constants(name))


# The tests below also cover any new estimator added to ESTIMATORS.


@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimators__gradient_matches_value(name):
    scores = torch.randn(3, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def estimate(scores):
        return ESTIMATORS[name](scores[:, 0], scores[:, 1:], **constants(name))

    assert estimate(scores).shape == (3,)
    assert torch.autograd.gradcheck(estimate, scores.requires_grad_())


@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimators__treat_images_independently(name):
    scores = torch.randn(3, 6, generator=torch.Generator().manual_seed(0))
    together = ESTIMATORS[name](scores[:, 0], scores[:, 1:], **constants(name))
    alone = [ESTIMATORS[name](row[:1], row[None, 1:], **constants(name)) for row in scores]
    torch.testing.assert_close(together, torch.cat(alone))


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("top", [0, 1])
def test_estimators__are_finite_if_h_rounds_to_1(name, top):
    scores = torch.zeros(1, 5)
    scores[0, top] = 600.0
    scores.requires_grad_()
    value = ESTIMATORS[name](scores[:, 0], scores[:, 1:], **constants(name))
    value.sum().backward()
    assert value.isfinite()
    assert scores.grad.isfinite().all()


@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimators__compute_half_precision_in_float32(name):
    scores = torch.randn(2, 5).bfloat16()
    found = ESTIMATORS[name](scores[:, 0], scores[:, 1:], **constants(name))
    assert found.dtype == torch.float32
    assert torch.equal(
        found, ESTIMATORS[name](scores[:, 0].float(), scores[:, 1:].float(), **constants(name))
    )


def decoupled(positive, negatives):
    """Decoupled contrastive learning (Yeh et al., arXiv 2110.06848)."""
    return negatives.logsumexp(1) - positive


def hinge(positive, negatives):
    return negatives.clamp(min=0).sum(1)  # without the positive


def scaled_nce(positive, negatives, norm_constant, num_rows):
    return 2 * nce(positive, negatives, norm_constant, num_rows)


@pytest.mark.parametrize(
    ("function", "listed"), [(decoupled, True), (hinge, False), (scaled_nce, False)]
)
def test_new_estimator__is_one_function(function, listed, monkeypatch):
    estimator = function
    if listed:
        monkeypatch.setitem(ESTIMATORS, "new", function)
        estimator = "new"
    loss = make_loss(estimator=estimator)
    ours, loops = embeddings(), embeddings()
    index = torch.tensor([3, 0, -1, 39, 7])
    drawn = torch.arange(55).view(5, 11) % 40
    value = loss(*ours, index, drawn)

    def loop(positive, negatives, z, rows):
        more = (z, rows) if function is scaled_nce else ()
        return function(positive[None], negatives[None], *more)[0]

    monkeypatch.setitem(LOOPS, estimator, loop)
    expected = loop_loss(loss, *loops, index, drawn)
    torch.testing.assert_close(value, expected)
    value.backward()
    expected.backward()
    for mine, theirs in zip(ours, loops, strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)


@pytest.mark.parametrize("wrong", [lambda p, n: n, lambda p, n: n.sum(), lambda p, n: 1.0])
def test_new_estimator__returns_one_value_per_image(wrong):
    with pytest.raises(ValueError, match=r"expected a tensor \(10,\), one value per image"):
        make_loss(estimator=wrong)(*embeddings(), torch.arange(5))
