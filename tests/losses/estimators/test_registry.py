"""The table of estimators: every name is one object, and a form that is missing is refused."""

import pytest
import torch

from pirl_plugin.losses.estimators import ESTIMATORS, get_estimator
from pirl_plugin.losses.pirl_loss import PIRLLoss
from tests.helpers.decoupled import Decoupled, PlainDecoupled


@pytest.fixture
def dcl(monkeypatch):
    """The one line that adds an estimator, twice."""
    for cls in (PlainDecoupled, Decoupled):
        monkeypatch.setitem(ESTIMATORS, cls.name, f"tests.helpers.decoupled:{cls.__name__}")


def make_loss(**settings):
    return PIRLLoss(400, embedding_dim=8, num_negatives=50, temperature=1.0, **settings)


def value_and_gradient(loss):
    generator = torch.Generator().manual_seed(0)
    output = [torch.randn(6, 8, generator=generator).requires_grad_() for _ in range(2)]
    value = loss(output, torch.tensor([5, -1, 0, 399, 5, 7]))
    return value.detach(), torch.stack(torch.autograd.grad(value, output))


def test_estimators__have_the_names_of_the_table():
    assert {name: get_estimator(name).name for name in ESTIMATORS} == {n: n for n in ESTIMATORS}
    with pytest.raises(ValueError, match=r"estimator = 'nse': expected one of nce, nce_softmax"):
        get_estimator("nse")


@pytest.mark.parametrize("scores", ["auto", "blocked", "triton"])
def test_plain_estimator__is_refused_where_another_form_would_run(dcl, scores):
    with pytest.raises(
        ValueError, match=rf"scores = {scores}: expected plain, .* dcl_plain has; set scores: plain"
    ):
        make_loss(estimator="dcl_plain", scores=scores)


def test_fourth_estimator__runs_in_the_engines_whose_sums_it_uses(dcl):
    expected = value_and_gradient(make_loss(estimator="dcl_plain", scores="plain"))
    other = value_and_gradient(make_loss(estimator="info_nce", scores="plain"))
    assert not torch.allclose(expected[0], other[0], rtol=1e-4)
    for scores in ("plain", "blocked", "triton", "auto"):
        found = value_and_gradient(make_loss(estimator="dcl", scores=scores))
        for mine, oracle in zip(found, expected, strict=True):
            torch.testing.assert_close(mine, oracle, rtol=1e-5, atol=1e-5)
