"""PIRLLoss: Eq. 5 against a loop, against VISSL's loss, and what a loss must survive."""

import contextlib
import dataclasses
import inspect
import math

import pytest
import torch
from torch.nn.functional import normalize

from pirl_plugin.benchmark.vissl_loss import vissl_loss
from pirl_plugin.losses.config import PIRLLossConfig
from pirl_plugin.losses.pirl_loss import PIRLLoss
from pirl_plugin.memory import MemoryBank

ROWS, DIM, NEGATIVES = 40, 8, 11


SETTINGS = {"num_train_samples": ROWS, "embedding_dim": DIM, "num_negatives": NEGATIVES}


@pytest.fixture(params=["plain", "blocked"], autouse=True)
def scores(request, monkeypatch):
    """Every test here, with all scores at once and with sums over the drawn rows."""
    monkeypatch.setitem(SETTINGS, "scores", request.param)


def make_loss(**settings):
    return PIRLLoss(**{**SETTINGS, **settings})


def embeddings(batch=5, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(batch, DIM, generator=generator, dtype=dtype).requires_grad_() for _ in range(2)
    ]


def loop(loss, output, target, negatives):
    """Eq. 5 with the nce estimator, one data point and one negative at a time."""
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


def test_norm_constant__is_the_mean_over_the_negatives_of_the_first_batch():
    loss = make_loss()
    target = torch.tensor([1, -1, 2])
    negatives = torch.tensor([[5] * NEGATIVES, [6] * NEGATIVES, [8] * NEGATIVES])
    output = embeddings(3)
    loss(output, target, negatives)
    scores = [normalize(o)[[0, 2]] @ loss.bank.rows.double()[[5, 8]].T / 0.07 for o in output]
    expected = ROWS * torch.stack([s.diagonal().exp() for s in scores]).mean()
    torch.testing.assert_close(loss.norm_constant, expected, rtol=1e-6, atol=0)
    loss(embeddings(3, seed=9), target, negatives)
    torch.testing.assert_close(loss.norm_constant, expected, rtol=1e-6, atol=0)


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


def test_update__moves_the_bank_and_counts_the_step():
    loss, output = make_loss(), embeddings(3, dtype=torch.float32)
    expected = MemoryBank(ROWS, DIM)
    rows = torch.tensor([4, -1, 9])
    moved = expected.update(rows, output[1])
    loss.update(rows, output[1])
    assert torch.equal(loss.bank.rows, expected.rows)
    assert torch.equal(loss.last_step.moved, moved)
    assert loss.step == 1
    with pytest.raises(ValueError, match="row 40 is outside"):
        loss.update(torch.tensor([0, 1, ROWS]), output[1])
    with torch.no_grad():
        output[1][2, 0] = torch.nan
    with pytest.raises(FloatingPointError, match=r"rows \[9\]"):
        loss.update(rows, output[1])
    assert torch.equal(loss.bank.rows, expected.rows)
    assert loss.step == 1


def test_seed__is_given_or_resolved_or_the_checkpoints():
    given, unset = make_loss(bank={"seed": 3}), make_loss()
    given.resolve_seed(7)
    assert given.seed == 3
    assert torch.equal(unset.bank.rows, MemoryBank(ROWS, DIM, seed=0).rows)  # no host: 0
    unset.resolve_seed(7)
    unset.resolve_seed(8)  # it has one now
    assert unset.seed == 7
    assert torch.equal(unset.bank.rows, MemoryBank(ROWS, DIM, seed=7).rows)
    resumed = make_loss()
    resumed.load_state_dict(unset.state_dict())
    resumed.resolve_seed(9)
    assert resumed.seed == 7
    assert torch.equal(resumed.bank.rows, unset.bank.rows)


def test_signature__has_the_defaults_of_the_configuration():
    keys = dict(inspect.signature(PIRLLoss).parameters)
    assert [*keys] == sorted(keys, key=[f.name for f in dataclasses.fields(PIRLLossConfig)].index)
    assert len(keys) == len(dataclasses.fields(PIRLLossConfig))
    for key, parameter in keys.items():
        if key not in ("num_train_samples", "bank"):
            assert parameter.default == getattr(PIRLLossConfig(), key), key


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


@pytest.mark.parametrize("estimator", ["nce", "nce_softmax", "info_nce"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_state__continues_to_the_bit(estimator, dtype, tmp_path):
    settings = {"estimator": estimator, "norm_constant_momentum": 0.9}
    loss = make_loss(bank={"seed": 1, "dtype": dtype}, **settings)
    again = make_loss(bank={"dtype": dtype}, **settings)  # the seed is the checkpoint's
    target = torch.tensor([3, 0, 39, 7, 8])

    def step(one, seed):
        output = embeddings(seed=seed, dtype=torch.float32)
        value = one(output, target)
        value.backward()
        one.update(target, output[1])
        return value.detach(), output[0].grad, one.bank.rows.clone(), one.norm_constant.clone()

    for seed in range(3):
        step(loss, seed)
    torch.save(loss.state_dict(), tmp_path / "loss.pt")
    again.load_state_dict(torch.load(tmp_path / "loss.pt", weights_only=True))
    assert again.step == 3
    for seed in (7, 8):
        for a, b in zip(step(loss, seed), step(again, seed), strict=True):
            assert torch.equal(a.nan_to_num(), b.nan_to_num())
    assert torch.equal(loss.bank.visited, again.bank.visited)


def test_state__of_another_data_set_is_refused():
    state = make_loss().state_dict()
    other = PIRLLoss(41, embedding_dim=DIM)
    with pytest.raises(ValueError, match=r"bank is \(40, 8\), this run's is \(41, 8\).*same data"):
        other.load_state_dict(state)


def test_sharded__refuses_more_negatives_than_a_shard_has_without_replacement():
    sharded = {"bank": {"placement": "sharded"}, "replacement": False}
    make_loss(**sharded, num_negatives=ROWS - 1)
    with pytest.raises(ValueError, match="without replacement"):
        make_loss(**sharded, num_negatives=ROWS)


def test_forward__refuses_what_does_not_fit_the_bank():
    loss = make_loss()
    with pytest.raises(ValueError, match="row 40 is outside the memory bank of 40 rows"):
        loss(embeddings(2), torch.tensor([0, 40]))
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


def test_norm_constant__moves_if_asked():
    loss = make_loss(norm_constant_momentum=0.9)
    target = torch.arange(5)
    negatives = torch.randint(0, ROWS, (5, NEGATIVES), generator=torch.Generator().manual_seed(6))
    loss(embeddings(), target, negatives)
    first = loss.norm_constant.clone()
    fresh = make_loss()
    fresh(embeddings(seed=3), target, negatives)
    loss(embeddings(seed=3), target, negatives)
    torch.testing.assert_close(loss.norm_constant, 0.9 * first + 0.1 * fresh.norm_constant)


def test_loss__survives_embeddings_of_extreme_norm():
    for scale in (1e-20, 1e20):
        output = [scale * o.detach().float() for o in embeddings()]
        value = make_loss()([o.requires_grad_() for o in output], torch.arange(5))
        value.backward()
        assert value.isfinite()
        assert all(o.grad.isfinite().all() for o in output)
