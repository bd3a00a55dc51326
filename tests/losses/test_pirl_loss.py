"""PIRLLoss: Eq. 5 against a loop, against VISSL's loss, and what a loss must survive."""

import contextlib
import math

import pytest
import torch
from torch.nn.functional import normalize

from pirl_plugin import PIRLLoss
from pirl_plugin.benchmark.loss import vissl_loss
from tests.helpers.loss_cases import (
    DIM,
    NEGATIVES,
    ROWS,
    embeddings,
    every_form,  # noqa: F401
    make_loss,
)


def loop(loss, output, target, negatives):
    """Eq. 5 with the nce estimator, one image and one negative at a time."""
    bank, config = loss.bank.rows.double(), loss.config
    noise = negatives.shape[1] / bank.shape[0]
    total = 0
    weights = (config.lambda_invariance, 1 - config.lambda_invariance)
    for weight, embedding in zip(weights, output, strict=True):
        for v, row, drawn in zip(normalize(embedding), target, negatives, strict=True):
            p = torch.exp(v @ bank[row] / config.temperature) / loss.norm_constant
            value = -torch.log(p / (p + noise))
            for n in drawn:
                p = torch.exp(v @ bank[n] / config.temperature) / loss.norm_constant
                value = value - torch.log(1 - p / (p + noise))
            total = total + weight * value
    return total / len(target)


@pytest.mark.parametrize("weight", [0.0, 0.25, 0.5, 1.0])
def test_loss__agrees_with_a_loop_in_value_and_gradient(weight):
    loss = make_loss(lambda_invariance=weight, norm_constant=90.0)
    target = torch.tensor([3, 0, 39, 7, 7])
    negatives = torch.randint(0, ROWS, (5, NEGATIVES), generator=torch.Generator().manual_seed(1))
    ours, loops = embeddings(), embeddings()
    value, expected = loss(ours, target, negatives), loop(loss, loops, target, negatives)
    torch.testing.assert_close(value, expected, rtol=1e-6, atol=1e-6)
    value.backward()
    expected.backward()
    for mine, theirs in zip(ours, loops, strict=True):
        expected_grad = torch.zeros_like(mine) if theirs.grad is None else theirs.grad
        torch.testing.assert_close(mine.grad, expected_grad, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("estimator", ["nce", "info_nce"])
def test_loss__agrees_with_vissls_given_the_same_bank_and_draw(estimator):
    loss_type = {"nce": "nce", "info_nce": "cross_entropy"}[estimator]
    theirs = vissl_loss(ROWS, DIM, NEGATIVES, norm_constant=90.0, loss_type=loss_type).double()
    ours = make_loss(estimator=estimator, norm_constant=90.0).double()
    theirs.nce_average.memory.copy_(ours.bank.rows)
    theirs.init_sync_memory = True  # one process: nothing to average
    if estimator == "nce":
        theirs.nce_criterion.eps = 0.0
    target = torch.tensor([3, 0, 39, 7, 8])
    drawn = torch.randint(0, ROWS, (5, NEGATIVES), generator=torch.Generator().manual_seed(2))
    theirs.nce_average.do_negative_sampling = lambda *_, **__: torch.cat(
        [target[:, None], drawn], dim=1
    )
    mine, other = embeddings(), embeddings()
    value, expected = ours(mine, target, drawn), theirs(other, target).squeeze()
    torch.testing.assert_close(value, expected, rtol=1e-5, atol=0)
    value.backward()
    expected.backward()
    for a, b in zip(mine, other, strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-5, atol=1e-9)


def test_loss__leaves_invalid_rows_out():
    target = torch.tensor([4, -1, 9, -1])
    keep = target >= 0
    negatives = torch.randint(10, ROWS, (4, NEGATIVES), generator=torch.Generator().manual_seed(3))
    loss = make_loss(norm_constant=90.0)
    all_rows = embeddings(4)
    valid_only = [o.detach()[keep].requires_grad_() for o in all_rows]
    value = loss(all_rows, target, negatives)
    torch.testing.assert_close(value, loss(valid_only, target[keep], negatives[keep]))
    value.backward()
    assert (all_rows[0].grad[~keep] == 0).all()


@pytest.mark.parametrize("whole", [True, False])
def test_loss__draws_for_the_batch_from_all_but_its_valid_rows(whole):
    """Of three images, the two that an image and one that could not be read leave."""
    loss = PIRLLoss(3, embedding_dim=DIM, num_negatives=2, negatives="per_batch", replacement=False)
    target = torch.tensor([1, -1])
    valid = target >= 0
    with contextlib.nullcontext() if whole else loss.micro_batches(target):
        batch = loss.contrast(embeddings(2), target.clamp(min=0), valid)
    assert sorted(batch.draw.all()[0].tolist()) == [0, 2]


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_loss__of_an_unused_head_leaves_invalid_rows_out_too(weight):
    loss, output = make_loss(lambda_invariance=weight), embeddings(3)
    with torch.no_grad():
        for embedding in output:
            embedding[1] = torch.nan
    value = loss(output, torch.tensor([4, -1, 9]))
    value.backward()
    assert value.isfinite()
    assert all(o.grad.isfinite().all() for o in output)


def test_loss__of_no_valid_row_is_zero_with_its_graph():
    loss, output = make_loss(), embeddings(3)
    value = loss(output, torch.tensor([-1, -1, -1]))
    value.backward()
    assert value.item() == 0
    assert all((o.grad == 0).all() for o in output)
    again = make_loss()
    again.load_state_dict(loss.state_dict())  # Z is still unknown, and says so
    assert again.norm_constant.isnan()
    loss(embeddings(3), torch.tensor([0, 1, 2]))  # Z is estimated from the first valid batch
    assert loss.norm_constant.isfinite()


def test_loss__gets_no_gradient_from_an_invalid_row_however_broken():
    output = [o.detach() for o in embeddings(3)]
    output[0][1] = torch.nan
    output = [o.requires_grad_() for o in output]
    make_loss()(output, torch.tensor([0, -1, 2])).backward()
    assert all(o.grad.isfinite().all() for o in output)
    assert (output[0].grad[1] == 0).all()


@pytest.mark.parametrize("phase", [torch.no_grad, torch.inference_mode, None])
@pytest.mark.parametrize("estimator", ["nce", "info_nce"])
def test_loss__of_a_test_phase_is_zero_and_fixes_nothing(phase, estimator):
    loss, output = make_loss(estimator=estimator), embeddings(2)
    before = loss.state_dict()
    loss.train(phase is not None)  # loss.eval() is a test phase too
    with phase() if phase else contextlib.nullcontext():
        value = loss(output, torch.tensor([3, ROWS + 5]))  # rows of the test set
    assert value.item() == 0
    assert value.dtype == torch.float64  # as in training, for float64 embeddings
    assert loss.norm_constant.isnan()
    assert not loss.norm_constant_known
    assert loss.last_step.terms == {}
    for key, tensor in loss.state_dict().items():
        if isinstance(tensor, torch.Tensor):
            torch.testing.assert_close(tensor, before[key], equal_nan=True, rtol=0, atol=0)
    with pytest.raises(ValueError, match=r"shape \(2, 9\)"), torch.no_grad():
        loss([torch.zeros(2, 9)] * 2, torch.tensor([0, 1]))


def test_loss__takes_a_batch_of_one():
    assert make_loss()(embeddings(1), torch.tensor([[5]])).isfinite()


@pytest.mark.parametrize("estimator", ["nce", "nce_softmax", "info_nce"])
def test_loss__is_float32_under_autocast(estimator):
    loss = make_loss(estimator=estimator)
    output = [o.detach().bfloat16().requires_grad_() for o in embeddings()]
    reference = make_loss(estimator=estimator)([o.float() for o in output], torch.arange(5))
    with torch.autocast("cpu", torch.bfloat16):
        value = loss(output, torch.arange(5))
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, reference)


def test_forward__refuses_what_does_not_fit_the_bank():
    loss = make_loss()
    with pytest.raises(ValueError, match="row 40 is outside the memory bank of 40 rows"):
        loss(embeddings(2), torch.tensor([0, 40]))
    with pytest.raises(ValueError, match=r"target holds -100: expected each image's row .* or -1"):
        loss(embeddings(2), torch.tensor([0, -100]))  # as torch's cross_entropy ignores
    with pytest.raises(ValueError, match=r"target is torch\.int32: expected int64, each"):
        loss(embeddings(2), torch.tensor([0, 1], dtype=torch.int32))
    for row in (-1, ROWS):
        with pytest.raises(ValueError, match=f"negatives hold row {row}: expected rows from 0 to "):
            loss(embeddings(2), torch.tensor([0, 1]), torch.tensor([[1, 2], [row, 3]]))
    wide = [torch.zeros(2, 9), torch.zeros(2, 9)]
    with pytest.raises(ValueError, match=r"shape \(2, 9\) for 2 images: expected \(2, 8\)"):
        loss(wide, torch.tensor([0, 1]))
    with pytest.raises(ValueError, match=r"lambda_invariance = 0.5: expected 0 \(NPID\), since"):
        loss(torch.zeros(2, DIM), torch.tensor([0, 1]))


def test_nce__of_random_embeddings_is_what_chance_gives():
    # s ≈ 0 for all: p = 1/Z with Z = |D|, so h = 1 / (1 + N) and the loss is
    # −log(1/(1+N)) − N·log(N/(1+N)), each term alike.
    loss = make_loss(temperature=1e3)
    chance = math.log(1 + NEGATIVES) + NEGATIVES * math.log((1 + NEGATIVES) / NEGATIVES)
    assert loss(embeddings(), torch.arange(5)).item() == pytest.approx(chance, rel=1e-4)


def test_lambda_of_zero__is_npid():
    # Wu et al. 2018: the loss of f(v_I) alone, whatever the other head says.
    target = torch.tensor([3, 0, 39, 7, 8])
    negatives = torch.randint(0, ROWS, (5, NEGATIVES), generator=torch.Generator().manual_seed(4))
    loss = make_loss(lambda_invariance=0.0, norm_constant=90.0)
    g, f = embeddings()
    value = loss([g, f], target, negatives)
    torch.testing.assert_close(value, loss([1e3 * torch.ones_like(g), f], target, negatives))
    both = make_loss(lambda_invariance=0.5, norm_constant=90.0)
    both([g, f], target, negatives)
    torch.testing.assert_close(value.detach(), both.last_step.terms["image"])
    assert set(loss.last_step.terms) == {"image"}
    # f(v_I) alone, as the NPID configs put it out: the same value and gradient.
    alone, with_g = f.detach().requires_grad_(), f.detach().requires_grad_()
    torch.testing.assert_close(loss(alone, target, negatives), value)
    loss(alone, target, negatives).backward()
    loss([g, with_g], target, negatives).backward()
    torch.testing.assert_close(alone.grad, with_g.grad)


def test_several_transforms__share_lambda_or_take_given_weights():
    target = torch.arange(5)
    negatives = torch.randint(0, ROWS, (5, NEGATIVES), generator=torch.Generator().manual_seed(5))
    output = [*embeddings(), *embeddings(seed=1)][:3]
    loss = make_loss(lambda_invariance=0.5, norm_constant=90.0)
    value = loss(output, target, negatives)
    first, second, image = (
        loss.last_step.terms[n] for n in ("invariance_0", "invariance_1", "image")
    )
    torch.testing.assert_close(value.detach(), 0.25 * first + 0.25 * second + 0.5 * image)
    loss = make_loss(term_weights=[0.7, 0.0, 0.2], norm_constant=90.0)
    value = loss(output, target, negatives)
    torch.testing.assert_close(value.detach(), 0.7 * first + 0.2 * image)
    assert set(loss.last_step.terms) == {"invariance_0", "image"}
    with pytest.raises(ValueError, match=r"term_weights = \[0.7, 0.0, 0.2\]: expected 2 weights"):
        loss(output[:2], target, negatives)


def test_loss__survives_embeddings_of_extreme_norm():
    for scale in (1e-20, 1e20):
        output = [scale * o.detach().float() for o in embeddings()]
        value = make_loss()([o.requires_grad_() for o in output], torch.arange(5))
        value.backward()
        assert value.isfinite()
        assert all(o.grad.isfinite().all() for o in output)


def test_norm_constant__is_a_mean_over_the_draw_that_is_given():
    """N of a given draw may be another than num_negatives."""
    drawn = torch.randint(0, ROWS, (5, 8), generator=torch.Generator().manual_seed(1))
    found = []
    for configured in (4, 8, 4000):
        loss = make_loss(norm_constant=None, num_negatives=configured)
        loss(embeddings(), torch.arange(5), drawn)
        found.append(loss.norm_constant.item())
    assert found == [found[0]] * 3


@pytest.mark.parametrize("scores", ["auto", "plain", "blocked"])
@pytest.mark.parametrize("estimator", ["nce", "nce_softmax", "info_nce"])
def test_empty_batch__is_zero_with_its_graph(estimator, scores):
    loss = make_loss(estimator=estimator, scores=scores, norm_constant=90.0)
    output = [one[:0].detach().requires_grad_() for one in embeddings()]
    value = loss(output, torch.arange(0))
    value.backward()
    assert value.item() == 0
    assert [one.grad.shape for one in output] == [(0, DIM)] * 2


def test_temperature__at_its_lower_end_leaves_z_finite():
    loss = make_loss(temperature=0.0015, norm_constant=None).double()
    rows = torch.arange(5)
    same = loss.bank.rows[rows].clone().requires_grad_()
    value = loss([same, same], rows, rows.flip(0).expand(NEGATIVES, 5).T.contiguous())
    assert value.isfinite()
    assert loss.norm_constant.isfinite()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"output": []}, r"no embeddings: expected \[g\(v_It\), f\(v_I\)\]"),
        ({"target": torch.rand(5)}, "target is torch.float32: expected int64"),
        ({"target": torch.ones(5).bool()}, "target is torch.bool: expected int64"),
        ({"target": [0, 1, 2, 3, 4]}, "target is a list: expected int64"),
        (
            {"output": [torch.ones(5, DIM).int()] * 2},
            "are torch.int32: expected a tensor of",
        ),
        (
            {"negatives": torch.ones(5, 3).long().numpy()},
            "negatives is a ndarray: expected a torch",
        ),
        ({"negatives": torch.ones(5, 3).int()}, r"expected int64 \(5, N\)"),
        ({"negatives": torch.ones(9, 3).long()}, r"of shape \(9, 3\): expected int64 \(5, N\)"),
        ({"negatives": torch.ones(5, 0).long()}, r"of shape \(5, 0\): expected"),
        ({"negatives": torch.ones(5).long()}, r"of shape \(5,\): expected"),
    ],
)
def test_arguments__of_another_kind_are_named(given, says):
    arguments = {"output": embeddings(), "target": torch.arange(5)} | given
    with pytest.raises(ValueError, match=says):
        make_loss(norm_constant=90.0)(**arguments)
