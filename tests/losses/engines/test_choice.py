"""Which engine runs, that all give the same loss, and what the streamed ones never hold."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from pirl_plugin.losses.engines import blocked, choice
from pirl_plugin.losses.engines import triton as triton_engine
from pirl_plugin.losses.engines.base import ContrastBatch
from pirl_plugin.losses.engines.choice import make_engine
from pirl_plugin.losses.engines.plain import PlainEngine
from pirl_plugin.losses.estimators import ESTIMATORS, get_estimator
from pirl_plugin.losses.estimators.base import NormConstant
from pirl_plugin.losses.pirl_loss import PIRLLoss
from pirl_plugin.memory import Draw
from tests.helpers.estimator_tester import DEVICE, EstimatorTester, make_batch


def with_draw(batch, draw, dtype=torch.float32):
    table = batch.table.to(dtype)
    return ContrastBatch(batch.queries, batch.positives, table, draw, batch.temperature)


@pytest.mark.parametrize("scores", ["blocked", "triton"])
@pytest.mark.parametrize("replacement", [True, False])
def test_streamed__makes_the_draw_that_is_given_otherwise(scores, replacement, monkeypatch):
    monkeypatch.setattr(blocked, "_BLOCK", 16)
    monkeypatch.setattr(triton_engine, "_TILE", 4 * 128)
    monkeypatch.setattr(triton_engine, "_PROGRAMS", 16)
    device = DEVICE if scores == "triton" else "cpu"
    batch = make_batch(2, 4, 8, 300, 1, device=device)
    rows = torch.tensor([7, 299, 0, 8], device=device)
    exclude = torch.tensor([7, -1, 0, 299], device=device)
    draw = Draw(rows, exclude, 300, 101, seed=2**40 + 5, step=2**33 + 1, replacement=replacement)
    made, given = with_draw(batch, draw), with_draw(batch, draw.all())
    assert isinstance(make_engine(scores, made).batch.draw, Draw) == replacement
    for name in ESTIMATORS:
        tester = EstimatorTester(get_estimator(name), scores)
        pairs = zip(tester.value_and_gradient(made), tester.value_and_gradient(given), strict=True)
        for first, second in pairs:
            torch.testing.assert_close(first, second, rtol=0, atol=0)


def test_streamed__refuses_a_second_derivative():
    batch = make_batch(2, 3, 16, 80, 60)
    batch.queries.requires_grad_()
    constant = NormConstant(torch.tensor(9.0), 80)
    values = make_engine("blocked", batch).loss(get_estimator("info_nce"), constant)
    with pytest.raises(RuntimeError, match=r"expected one differentiation.*set it to plain"):
        torch.autograd.grad(values.sum(), batch.queries, create_graph=True)


def make_loss(**settings):
    return PIRLLoss(400, embedding_dim=8, num_negatives=50, **settings)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("momentum", [1.0, 0.9])
def test_loss__is_the_same_however_scores_are_computed(estimator, momentum):
    generator = torch.Generator().manual_seed(0)
    batches = [torch.randn(2, 6, 8, generator=generator) for _ in range(3)]
    outcomes = {}
    for scores in ("plain", "blocked", "triton", "auto"):
        loss = make_loss(
            estimator=estimator, scores=scores, norm_constant_momentum=momentum
        ).to(DEVICE)  # fmt: skip
        values = []
        for batch in batches:
            output = [o.to(DEVICE).requires_grad_() for o in batch]
            value = loss(output, torch.tensor([5, -1, 0, 399, 5, 7], device=DEVICE))
            value.backward()
            values += [value.detach().flatten(), *(o.grad.flatten() for o in output)]
            loss.step += 1
        outcomes[scores] = torch.cat(values)
    for scores, found in outcomes.items():
        torch.testing.assert_close(found, outcomes["plain"], rtol=1e-5, atol=1e-5, msg=scores)


def test_loss__trains_a_compiled_model_under_autocast():
    model = torch.nn.Linear(6, 8)
    gradients = []
    for run in (model, torch.compile(model, backend="aot_eager")):
        loss = make_loss(norm_constant=500.0, scores="blocked")
        model.zero_grad()
        images = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
        with torch.autocast("cpu", torch.bfloat16):
            value = loss([run(images), run(images + 1)], torch.arange(4))
        assert value.dtype == torch.float32
        value.backward()
        gradients.append(model.weight.grad.clone())
    torch.testing.assert_close(*gradients, rtol=1e-2, atol=1e-3)
    assert gradients[0].abs().max() > 0.1


def test_engine__is_chosen_by_table_and_draw():
    def chosen(rows, dtype=torch.float32, **options):
        draw = Draw(torch.arange(3), torch.arange(3), rows, 50, seed=0, step=0, **options)
        engine = make_engine("auto", with_draw(make_batch(2, 3, 8, rows, 1), draw, dtype))
        return PlainEngine if isinstance(engine, PlainEngine) else engine.sums

    assert chosen(251) is blocked.BlockedSums
    assert chosen(250) is PlainEngine  # the whole table is scored
    assert chosen(251, per_batch=True) is PlainEngine  # one draw, one matrix product
    assert chosen(251, replacement=False) is blocked.BlockedSums
    assert chosen(250, dtype=torch.bfloat16) is blocked.BlockedSums  # a table is not widened whole


@pytest.mark.parametrize(
    ("dtype", "expected"), [(torch.float32, "triton"), (torch.float64, "blocked")]
)
def test_engine__on_a_gpu_is_triton_for_float32_alone(dtype, expected, monkeypatch):
    monkeypatch.setattr(choice, "triton_runs", lambda device: True)
    draw = Draw(torch.arange(3), torch.arange(3), 251, 50, seed=0, step=0)
    with FakeTensorMode():  # tensors "on a GPU" that hold nothing
        queries, positives, table = (
            torch.empty(*shape, 8, dtype=dtype, device="cuda") for shape in ((2, 3), (3,), (251,))
        )
        assert choice._best(ContrastBatch(queries, positives, table, draw, 0.07)) == expected


def test_engine__refuses_triton_where_it_cannot_run(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(ValueError, match=r"torch.float32 on cpu: expected float32.*a CUDA device"):
        make_engine("triton", make_batch(2, 3, 8, 30, 5))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_blocked__never_holds_all_drawn_rows(estimator, monkeypatch):
    """No tensor of B × N × D elements exists at any time, nor one of B × N."""
    size, dim, rows, count = 96, 8, 12_000, 2000
    monkeypatch.setattr(blocked, "_SCORES", 2 * count)  # of one image; a constant
    draw = Draw(torch.arange(size), torch.arange(size), rows, count, seed=0, step=0)
    batch = with_draw(make_batch(2, size, dim, rows, 1), draw)
    batch.queries.requires_grad_()
    sizes = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            made = result if isinstance(result, (tuple, list)) else [result]
            tensors = [tensor for tensor in made if isinstance(tensor, torch.Tensor)]
            sizes.extend(t.numel() for t in tensors if t.data_ptr() != batch.table.data_ptr())
            return result

    with Watch():
        constant = NormConstant(torch.tensor(9e5), rows)
        make_engine("auto", batch).loss(get_estimator(estimator), constant).sum().backward()
    assert max(sizes) <= count * dim < size * count  # one image's rows
