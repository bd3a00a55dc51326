"""Each estimator in the Triton kernels against float64: values and gradients."""

import pytest
import torch

from pirl_plugin import PIRLLoss
from tests.helpers.gpu_oracle import ESTIMATORS, check_against_oracle, make_outputs

TEMPERATURE = 0.07
# Terms, B, N, D, |D|: odd sizes, sizes of 1, and the paper's.
CASES = {
    "paper": (2, 32, 32_000, 128, 1_281_167),
    "all of a node": (2, 256, 32_000, 128, 200_000),
    "many negatives": (2, 3, 65_536, 128, 100_003),
    "odd": (2, 33, 4097, 127, 50_021),
    "three terms": (3, 7, 1009, 96, 7919),
    "one of each": (1, 1, 1, 16, 2),
    "wide": (1, 5, 777, 1000, 5003),
    "narrow": (3, 2, 131, 3, 1009),
}
SMALL = {
    "odd": (2, 3, 41, 27, 50), "three terms": (3, 2, 17, 6, 31), "one of each": (1, 1, 1, 16, 2),
}  # fmt: skip
DTYPES = ("float32", "bfloat16", "float16")


def make_loss(case, device, estimator, dtype, **more):
    terms, batch, count, dim, num_rows = case
    loss = PIRLLoss(
        num_rows, embedding_dim=dim, num_negatives=count, estimator=estimator, scores="triton",
        norm_constant=2.2 * num_rows, temperature=TEMPERATURE, bank={"dtype": dtype},
        term_weights=[1 / terms] * terms, **more,
    ).to(device)  # fmt: skip
    rows = torch.randperm(num_rows, generator=torch.Generator().manual_seed(1))[:batch]
    rows = rows.repeat(-(-batch // len(rows)))[:batch].to(device)
    return loss, make_outputs(terms, batch, dim, device), rows


def sizes(device, name):
    if device == "cpu" and name not in SMALL:
        pytest.skip("its small size is another case's")
    return (SMALL if device == "cpu" else CASES)[name]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("name", CASES)
def test_loss__is_the_equation(device, name, estimator, dtype):
    case = sizes(device, name)
    loss, outputs, rows = make_loss(case, device, estimator, dtype)
    loss.step = 5
    check_against_oracle(loss, outputs, rows, estimator, TEMPERATURE, case[2])


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_loss__takes_a_draw_that_is_given(device, estimator):
    case = sizes(device, "odd")
    loss, outputs, rows = make_loss(case, device, estimator, "float32")
    given = torch.randint(case[4], (case[1], case[2])).to(device)
    check_against_oracle(loss, outputs, rows, estimator, TEMPERATURE, case[2], given)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_embedding__that_is_a_drawn_row_has_almost_all_of_the_softmax(device, estimator):
    case = sizes(device, "odd")
    loss, outputs, rows = make_loss(case, device, estimator, "float32")
    given = torch.randint(case[4], (case[1], case[2])).to(device)
    with torch.no_grad():
        outputs[0].copy_(3 * loss.bank.rows[given[:, 7]])
    check_against_oracle(loss, outputs, rows, estimator, TEMPERATURE, case[2], given)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_loss__is_that_of_the_other_engines(device, estimator):
    case = sizes(device, "odd")
    found = {}
    for scores in ("triton", "blocked", "plain"):
        loss, outputs, rows = make_loss(case, device, estimator, "float32")
        loss.config.scores = scores
        value = loss(outputs, rows)
        value.backward()
        found[scores] = torch.stack([value.detach().expand_as(outputs[0]), outputs[0].grad])
    for scores in ("triton", "blocked"):
        torch.testing.assert_close(found[scores], found["plain"], rtol=1e-4, atol=1e-4, msg=scores)


def test_norm_constant__is_estimated_from_the_first_batch(device):
    """Z = |D| · mean of exp(s/τ) over the negatives, in float64."""
    case = sizes(device, "odd")
    _, outputs, rows = make_loss(case, device, "nce", "float32")
    estimated = PIRLLoss(
        case[4], embedding_dim=case[3], num_negatives=case[2], scores="triton",
    ).to(device)  # fmt: skip
    given = torch.randint(case[4], (case[1], case[2])).to(device)
    estimated(outputs, rows, given)
    units = torch.stack([torch.nn.functional.normalize(o.detach().double()) for o in outputs])
    drawn = estimated.bank.rows.double()[given]  # (B, N, D)
    scores = torch.einsum("tbd,bnd->tbn", units, drawn) / TEMPERATURE
    expected = case[4] * scores.exp().mean()
    torch.testing.assert_close(estimated.norm_constant, expected, rtol=1e-5, atol=0)
