"""PIRLLoss: Eq. 5 compared with a loop on one and two ranks, state, and invalid inputs."""

import contextlib
import inspect
import io
import math
from dataclasses import fields

import pytest
import torch
from loss import vissl_loss
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from pirl_plugin.method.estimators import info_nce
from pirl_plugin.method.loss import PIRLLoss
from pirl_plugin.method.settings import BankConfig, PIRLLossConfig
from tests.helpers.loss_cases import (
    DIM,
    LOOPS,
    NEGATIVES,
    ROWS,
    embeddings,
    loop_loss,
    make_loss,
)
from tests.helpers.processes import run_in_processes
from tests.helpers.two_heads import DIM as NETWORK_DIM
from tests.helpers.two_heads import TwoHeads

pytestmark = pytest.mark.tensors


def some_index():
    return torch.tensor([3, 0, -1, 39, 7])


def some_draw(seed=1, batch=5):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, ROWS, (batch, NEGATIVES), generator=generator)


def step(loss):
    """Run one training step on three images and return its loss."""
    f, g = embeddings(3, seed=loss.step, dtype=torch.float32)
    index = torch.tensor([loss.step, 14, 15])
    value = loss(f, g, index)
    loss.update(index, f)
    return value


@pytest.mark.parametrize("estimator", LOOPS)
@pytest.mark.parametrize("weight", [0.0, 0.25, 1.0])
def test_loss__matches_loop_in_value_and_gradient(weight, estimator):
    loss = make_loss(estimator=estimator, lambda_invariance=weight, norm_constant=90.0)
    ours, loops = embeddings(), embeddings()
    value = loss(*ours, some_index(), some_draw())
    expected = loop_loss(loss, *loops, some_index(), some_draw())
    torch.testing.assert_close(value, expected, rtol=1e-9, atol=1e-9)
    value.backward()
    expected.backward()
    for mine, theirs in zip(ours, loops, strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-7, atol=1e-9)


@pytest.mark.only_cpu
@pytest.mark.parametrize("estimator", ["nce", "info_nce"])
def test_loss__matches_vissl_with_same_bank_and_draw(estimator):
    theirs = vissl_loss(ROWS, DIM, NEGATIVES, 90.0).double()
    theirs.loss_type = "cross_entropy" if estimator == "info_nce" else "nce"
    theirs.nce_average.loss_type = theirs.loss_type
    theirs.xe_criterion = nn.CrossEntropyLoss()
    theirs.init_sync_memory = True  # a single process has nothing to average
    if estimator == "nce":
        theirs.nce_criterion.eps = 0.0
    ours = make_loss(estimator=estimator, norm_constant=90.0)
    theirs.nce_average.memory.copy_(ours.bank.rows)
    index, drawn = torch.tensor([3, 0, 39, 7, 8]), some_draw()
    theirs.nce_average.do_negative_sampling = lambda *_, **__: torch.cat([index[:, None], drawn], 1)
    f, g = embeddings()
    value = ours(f, g, index, drawn)
    torch.testing.assert_close(value, theirs([g, f], index).squeeze(), rtol=1e-5, atol=0)


def test_nce__is_at_chance_for_random_embeddings():
    # All s ≈ 0: p = 1/Z with Z = |D|, so h = 1 / (1 + N) and the loss is
    # −log(1/(1+N)) − N·log(N/(1+N)), the same for every term.
    loss = make_loss(temperature=1e3)
    chance = math.log(1 + NEGATIVES) + NEGATIVES * math.log((1 + NEGATIVES) / NEGATIVES)
    assert loss(*embeddings(), torch.arange(5)).item() == pytest.approx(chance, rel=1e-4)


@pytest.mark.parametrize("weight", [0.0, 0.5, 1.0])
def test_invalid_images__contribute_no_value_or_gradient(weight):
    loss = make_loss(lambda_invariance=weight, norm_constant=90.0)
    output = embeddings()
    with torch.no_grad():
        for embedding in output:
            embedding[2] = torch.nan
    value = loss(*output, some_index(), some_draw())
    keep = some_index() >= 0
    torch.testing.assert_close(
        value, loss(*(o[keep].detach().requires_grad_() for o in output), some_index()[keep],
                    some_draw()[keep])
    )  # fmt: skip
    value.backward()
    for embedding in output:
        assert embedding.grad.isfinite().all()
        assert (embedding.grad[2] == 0).all()


@pytest.mark.parametrize("estimator", LOOPS)
@pytest.mark.parametrize("index", [[], [-1, -1]])
def test_loss__is_differentiable_zero_without_valid_images(estimator, index):
    loss, (f, g) = make_loss(estimator=estimator), embeddings(len(index))
    value = loss(f, g, torch.tensor(index, dtype=torch.int64))
    value.backward()
    assert value.item() == 0
    assert (f.grad == 0).all()
    assert loss.norm_constant is None
    loss(*embeddings(3), torch.arange(3))  # Z is estimated from the first valid batch
    assert (loss.norm_constant is not None) == (estimator == "nce")


@pytest.mark.parametrize("phase", [torch.no_grad, torch.inference_mode, None])
def test_test_phase__returns_zero_and_changes_nothing(phase):
    loss = make_loss().train(phase is not None)  # loss.eval() is a test phase too
    before = loss.bank.rows.clone()
    with phase() if phase else contextlib.nullcontext():
        value = loss(*embeddings(2), torch.tensor([3, ROWS + 5]))  # test-set rows
    assert value.item() == 0
    assert loss.norm_constant is None
    assert torch.equal(loss.bank.rows, before)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_loss__is_float32_under_autocast(dtype, device):
    loss = make_loss(bank={"dtype": dtype}, norm_constant=90.0)
    f, g = (output.detach().bfloat16().requires_grad_() for output in embeddings())
    index = some_index()
    with torch.autocast(device.type, torch.bfloat16):
        value = loss(f, g, index, some_draw())
    assert value.dtype == torch.float32
    expected = loop_loss(loss, f, g, index, some_draw())
    torch.testing.assert_close(value.double(), expected, rtol=2e-6, atol=0)


def test_terms__are_weighted_by_lambda_or_term_weights():
    f, g = embeddings()
    more = embeddings(seed=1)[0]
    loss = make_loss(norm_constant=90.0)
    value, terms = loss(f, [g, more], some_index(), some_draw()), loss.last_terms
    shares = [terms[name] for name in ("invariance_0", "invariance_1", "image")]
    torch.testing.assert_close(value.detach(), sum(map(torch.mul, shares, (0.25, 0.25, 0.5))))
    loss = make_loss(term_weights=[0.7, 0.0, 0.2], norm_constant=90.0)
    value, terms = loss(f, [g, more], some_index(), some_draw()), loss.last_terms
    assert list(terms) == ["invariance_0", "image"]
    torch.testing.assert_close(value.detach(), 0.7 * shares[0] + 0.2 * shares[2])
    with pytest.raises(ValueError, match=r"term_weights = .* expected 2 weights"):
        loss(f, g, some_index())
    npid = make_loss(lambda_invariance=0.0, norm_constant=90.0)
    torch.testing.assert_close(npid(f, None, some_index(), some_draw()).detach(), shares[2])
    with pytest.raises(ValueError, match=r"lambda_invariance = 0.5: expected 0 \(NPID\)"):
        make_loss()(f, None, some_index())


def test_per_batch_draw__excludes_only_valid_images():
    loss = PIRLLoss(5, embedding_dim=DIM, num_negatives=4, negatives="per_batch",
                    replacement=False, norm_constant=3.0)  # fmt: skip
    # Row 3 is in the batch. Rows 0 and 1, which index −1 might be mistaken for, are not.
    index = torch.tensor([3, -1])
    drawn = loss._draw(index.clamp(min=0), index >= 0)
    assert sorted(drawn[0].tolist()) == [0, 1, 2, 4]


def test_norm_constant__is_first_batch_mean_or_moving_average():
    loss = make_loss(norm_constant_momentum=0.75)
    found = []
    for seed in range(2):
        f, g = embeddings(seed=seed)
        loss(f, g, some_index(), some_draw(seed))
        rows, valid = loss.bank.rows[some_draw(seed)].double(), some_index() >= 0
        scores = [torch.einsum("bnd,bd->bn", rows, nn.functional.normalize(o)) for o in (f, g)]
        mean = torch.stack(scores)[:, valid].div(0.07).exp().mean() * ROWS
        found.append(mean if seed == 0 else 0.75 * found[0] + 0.25 * mean)
        assert loss.norm_constant == pytest.approx(found[-1].item())


def test_norm_constant__ignores_non_finite_embeddings():
    f, g = embeddings()
    broken = f.clone()
    broken[0] = math.nan
    losses = make_loss(), make_loss()
    losses[0](broken, g, some_index(), some_draw())
    without = some_index()
    without[0] = -1
    losses[1](f, g, without, some_draw())
    assert losses[0].norm_constant == pytest.approx(losses[1].norm_constant)
    losses[0].resize(ROWS * 10)  # an estimate is proportional to the number of rows
    assert losses[0].norm_constant is None


@pytest.mark.only_cpu
def test_loss__refuses_invalid_arguments():
    loss, (f, g) = make_loss(), embeddings(2)
    index = torch.tensor([0, 1])
    for row in (-2, ROWS):
        with pytest.raises(ValueError, match=f"index {row} is outside the memory bank of 40"):
            loss(f, g, torch.tensor([0, row]))
    for wrong, found in ((index.int(), r"torch\.int32 of shape \(2,\)"), ([0, 1], "of type list")):
        with pytest.raises(ValueError, match=f"index is {found}: expected an int64 tensor"):
            loss(f, g, wrong)
    shape = r"expected a float tensor of shape \(2, 8\)"
    for outputs, message in (
        ((torch.zeros(2, 9), g), rf"f_image is torch\.float32 of shape \(2, 9\): {shape}"),
        ((f, g.long()), rf"g_transformed is torch\.int64 of shape \(2, 8\): {shape}"),
        ((f, [g, None]), f"g_transformed is of type NoneType: {shape}"),
    ):
        with pytest.raises(ValueError, match=message):
            loss(*outputs, index)
    with pytest.raises(ValueError, match="num_train_samples = -1"):
        PIRLLoss(-1)
    with pytest.raises(TypeError, match=r"PIRLLoss.* unexpected keyword argument 'embeding_dim'"):
        PIRLLoss(9, embeding_dim=9)
    with pytest.raises(TypeError, match=r"BankConfig.* unexpected keyword argument 'momentun'"):
        PIRLLoss(9, bank={"momentun": 0.5})


@pytest.mark.only_cpu
@pytest.mark.parametrize("row", [ROWS, -1, -7])
@pytest.mark.parametrize("placement", ["replicated", "sharded"])
def test_loss__refuses_out_of_range_negatives(row, placement):
    loss, (f, g) = make_loss(bank={"placement": placement}), embeddings(2)
    with pytest.raises(ValueError, match=f"index {row} is outside the memory bank of 40"):
        loss(f, g, torch.tensor([0, 1]), torch.tensor([[3, 4], [5, row]]))


@pytest.mark.only_cpu
def test_loss__refuses_misshapen_negatives():
    loss, (f, g) = make_loss(), embeddings(2)
    for negatives in (torch.zeros(2, 3), torch.ones(3, 3).long(), torch.ones(2).long()):
        with pytest.raises(ValueError, match=r"negatives is .*: expected int64 \(2, N\)"):
            loss(f, g, torch.tensor([0, 1]), negatives)


WRONG = {
    "num_train_samples": (-2, 0, 1),
    "estimator": ("simclr", None, 1),
    "lambda_invariance": (-0.1, 1.1, math.nan, math.inf),
    "temperature": (0, 1e-3, -0.07, math.nan),
    "num_negatives": (0, -1, math.nan),
    "negatives": ("all", None),
    "norm_constant": (0, -1.0, math.nan),
    "norm_constant_momentum": (-0.1, 1.5, math.nan),
    "term_weights": ([0.0], [], [1.0, -1.0], [math.nan, 1.0]),
    "bank.placement": ("here", None),
    "bank.init": ("zeros", None),
}


def test_loss__refuses_out_of_range_settings(subtests):
    for name in WRONG:
        with subtests.test(name=name):
            first, _, second = name.partition(".")
            for value in WRONG[name]:
                settings = {"num_train_samples": 9, first: {second: value} if second else value}
                with pytest.raises(ValueError, match=rf"^{name} = .*: expected") as refused:
                    PIRLLoss(**settings)
                assert repr(value) in str(refused.value)


def test_config__matches_constructor_defaults():
    arguments = dict(inspect.signature(PIRLLoss).parameters)
    assert arguments.pop("num_train_samples").default is inspect.Parameter.empty
    assert arguments.pop("bank").default is None
    section = {field.name: field.default for field in fields(PIRLLossConfig)}
    assert section.pop("num_train_samples") == -1  # VISSL fills it in
    del section["bank"]
    assert PIRLLoss(9).config.bank == PIRLLossConfig().bank == BankConfig()
    assert {name: argument.default for name, argument in arguments.items()} == section


def test_loss__warns_once_about_likely_mistakes(caplog):
    forgotten, classes, right = (make_loss() for _ in range(3))
    for i in range(103):
        f, g = embeddings(3, seed=i)
        forgotten(f, g, torch.arange(3))
        classes.update(torch.tensor([i % 2, 1, 0]), f)
        right.update(torch.tensor([i % ROWS, 1, 0]), f)
    first, second = (record.getMessage() for record in caplog.records)
    assert (
        "not updated in the last 15 batches. Call update() after each optimizer step" in first
    )  # with 40 images, an epoch has up to 14 batches of 3
    assert "not its class" in second


# State


@pytest.mark.parametrize(
    "settings", [{}, {"norm_constant_momentum": 0.9}, {"bank": {"seed": 3, "dtype": "bfloat16"}}]
)
@pytest.mark.parametrize("inside", [False, True])
def test_state__continues_bit_for_bit(settings, inside):
    before, after = make_loss(**settings), make_loss(**settings)
    step(before)
    file = io.BytesIO()
    modules = [nn.ModuleList([nn.Linear(2, 2), one]) if inside else one for one in (before, after)]
    torch.save(modules[0].state_dict(), file)
    file.seek(0)
    modules[1].load_state_dict(torch.load(file, weights_only=True))
    for _ in range(2):
        assert torch.equal(step(after), step(before))
    assert after.norm_constant == before.norm_constant
    assert torch.equal(after.bank.rows, before.bank.rows)
    assert torch.equal(after.bank.visited, before.bank.visited)


def test_load__prefers_configured_norm_constant():
    state = make_loss(norm_constant=80.0).state_dict()
    for settings, expected in (({}, 80.0), ({"norm_constant": 70.0}, 70.0),
                               ({"temperature": 0.1}, None)):  # fmt: skip
        loss = make_loss(**settings)
        loss.load_state_dict(state)
        assert loss.norm_constant == expected
    assert step(loss).isfinite()  # estimates Z again


def test_load__refuses_unusable_state():
    state = make_loss(norm_constant=80.0).state_dict()
    message = r"size mismatch for bank\.rows: .*\[40, .*from checkpoint, .*\[41, "
    with pytest.raises(RuntimeError, match=message):  # photos were added
        make_loss(num_train_samples=41).load_state_dict(state)
    sharded = make_loss(bank={"placement": "sharded"})
    with pytest.raises(RuntimeError, match=r"Missing key.*bank\.rows"):
        make_loss().load_state_dict(sharded.state_dict())
    sharded.load_state_dict(state)
    with pytest.raises(RuntimeError, match=r"call bank.load\(FOLDER\) with"):
        step(sharded)


@pytest.mark.parametrize("cast", ["half", "double"])
def test_cast__keeps_bank_and_norm_constant(cast):
    loss = make_loss(norm_constant=1e30)
    getattr(nn.ModuleList([loss]), cast)()
    assert loss.norm_constant == 1e30
    assert loss.bank.rows.dtype == torch.float32
    assert loss.to("meta").bank.rows.device.type == "meta"


# Ranks


def train(rank, world_size, settings, given=False):
    """Train for three steps on this rank's share and return losses, gradients, bank and Z."""
    loss = PIRLLoss(50, embedding_dim=NETWORK_DIM, num_negatives=7, **settings)
    model = TwoHeads()
    wrapped = DistributedDataParallel(model) if world_size > 1 else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator, values = torch.Generator().manual_seed(1), []
    for batch in (13, 12, 5):  # two ranks have 6 and 7 images, then 6 each, then 2 and 3
        images = torch.randn(batch, 6, generator=generator)
        index = torch.randint(0, 50, (batch,), generator=generator)
        index[1] = index[-1]  # a repeated row, on two ranks
        index[[0, 2, 3]] = -1  # invalid images, unevenly spread
        drawn = torch.randint(0, 50, (batch, 7), generator=generator)
        mine = slice(rank * batch // world_size, (rank + 1) * batch // world_size)
        g, f = wrapped(images[mine])
        value = loss(f, g, index[mine], drawn[mine] if given else None)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        loss.update(index[mine], f)
        values.append(value.detach())
    gradients = [torch.zeros(1) if p.grad is None else p.grad for p in model.parameters()]
    return torch.stack(values), gradients, loss.bank.lookup(torch.arange(50)), loss.norm_constant


def train_all(rank, world_size, cases):
    return [train(rank, world_size, *case) for case in cases]


def sentence_of_rank(rank, world_size, settings):
    """Return the message on a rank whose settings the other rank does not have."""
    loss = make_loss(**(settings if rank else {}))
    f, g = embeddings(2)
    try:
        loss(f, g, torch.tensor([0, 1]))
    except ValueError as error:
        return str(error)
    return ""


def sentences_of_rank(rank, world_size, cases):
    return [sentence_of_rank(rank, world_size, settings) for settings in cases]


@pytest.mark.only_cpu
def test_ranks__compare_arguments_once():
    cases = [{}, {"num_train_samples": 41}, {"bank": {"seed": 1}}, {"estimator": info_nce}]
    for sentences in run_in_processes(sentences_of_rank, 2, cases):
        assert sentences[0] == ""
        assert sentences[1].startswith("rank 1: num_train_samples = 41 (on rank 0 40). Create the")
        assert "bank.seed = 1 (on rank 0 null)" in sentences[2]
        assert "estimator = info_nce (on rank 0 nce)" in sentences[3]


@pytest.mark.only_cpu
def test_ranks__match_one_process_on_joined_batch():
    cases = [({"estimator": name},) for name in LOOPS]
    cases.append(({"estimator": info_nce},))  # a config cannot name a function
    cases += [({"lambda_invariance": weight},) for weight in (0.0, 1.0)]  # an unused head
    cases.append(({"bank": {"placement": "sharded"}, "norm_constant": 60.0}, True))
    ranks = run_in_processes(train_all, 2, cases)
    for case, *results in zip(cases, *ranks, strict=True):
        expected = train(0, 1, {**case[0], "bank": {}}, *case[1:])
        values = torch.stack([result[0] for result in results]).mean(dim=0)
        torch.testing.assert_close(values, expected[0], rtol=1e-5, atol=1e-5)
        for _, gradients, bank, constant in results:
            for mine, joined in zip(gradients, expected[1], strict=True):
                torch.testing.assert_close(mine, joined, rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(bank, expected[2], rtol=1e-5, atol=1e-5)
            assert (constant or 1.0) == pytest.approx(expected[3] or 1.0, rel=1e-5)
            assert torch.equal(bank, results[0][2])


@pytest.mark.parametrize(("images", "number"), [(2, 1), (20, 10), (10_000, 4096)])
def test_num_negatives__follow_the_data_set_if_none(images, number):
    loss = PIRLLoss(images, embedding_dim=2, num_negatives=None, estimator="info_nce")
    assert loss.num_negatives == number
