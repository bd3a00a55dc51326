"""Fused sums against all scores at once, and those against a loop: values and gradients."""

import pytest
import torch
from torch.nn.functional import normalize

from pirl_plugin.losses.contrast import FusedContrast, PlainContrast, make_contrast
from pirl_plugin.losses.pirl_loss import PIRLLoss
from pirl_plugin.memory import Draw, blocked, triton_kernel

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"  # where Triton's interpreter runs
ESTIMATORS = ("nce", "nce_softmax", "info_nce")
SHAPES = [  # terms, batch, dim, rows, negatives
    (2, 3, 128, 60, 37),
    (1, 1, 16, 9, 1),
    (3, 2, 20, 4, 70),  # rows repeat; no size divides a block's
    (2, 5, 6, 500, 130),
]


def problem(terms, batch, dim, rows, negatives, dtype=torch.float32, device="cpu"):
    generator = torch.Generator().manual_seed(rows)
    table = normalize(torch.randn(rows, dim, generator=generator, dtype=dtype))
    queries = torch.randn(terms, batch, dim, generator=generator, dtype=dtype)
    own = torch.randint(rows, (batch,), generator=generator)
    drawn = torch.randint(rows, (batch, negatives), generator=generator)
    moved = (queries, table, own, drawn)
    queries, table, own, drawn = (tensor.to(device) for tensor in moved)
    return normalize(queries, dim=2).requires_grad_(), table[own], table, drawn


def value_and_gradient(contrast, queries, estimator):
    constants = ()
    if estimator == "nce":
        constants = (torch.tensor(77.0, dtype=torch.float64, device=queries.device), 60)
    values = contrast.loss(estimator, *constants)
    weights = torch.linspace(0.5, 2, values.numel(), device=queries.device).view_as(values)
    (gradient,) = torch.autograd.grad((values * weights).sum(), queries)
    return values.detach(), gradient


@pytest.fixture(params=["blocked", "triton"])
def sums(request, monkeypatch):
    """Both implementations, with blocks and tiles so small that these shapes need several."""
    monkeypatch.setattr(blocked, "_BLOCK", 16)
    monkeypatch.setattr(triton_kernel, "_TILE", 4 * 128)
    monkeypatch.setattr(triton_kernel, "_PROGRAMS", 16)
    return {"blocked": blocked, "triton": triton_kernel}[request.param]


def device_of(sums):
    return DEVICE if sums is triton_kernel else "cpu"


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("shape", SHAPES)
def test_fused__agrees_with_all_scores_at_once(sums, shape, estimator):
    queries, *rest = problem(*shape, device=device_of(sums))
    found = value_and_gradient(FusedContrast(queries, *rest, 0.07, sums), queries, estimator)
    wide = [tensor.detach().double() if tensor.is_floating_point() else tensor for tensor in rest]
    exact = queries.detach().double().requires_grad_()
    expected = value_and_gradient(PlainContrast(exact, *wide, 0.07), exact, estimator)
    for mine, oracle in zip(found, expected, strict=True):
        torch.testing.assert_close(mine.double(), oracle, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_fused__reads_half_precision_rows(sums, estimator, dtype):
    queries, own, table, drawn = problem(2, 3, 32, 50, 90, device=device_of(sums))
    halves = (own.to(dtype), table.to(dtype), drawn)
    found = value_and_gradient(FusedContrast(queries, *halves, 0.07, sums), queries, estimator)
    # The same halves as float32: agreement is that of float32. And 1e-2 from unrounded rows.
    rounded = (own.to(dtype).float(), table.to(dtype).float(), drawn)
    expected = value_and_gradient(PlainContrast(queries, *rounded, 0.07), queries, estimator)
    for mine, oracle in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, oracle, rtol=1e-5, atol=1e-4)
    full = value_and_gradient(PlainContrast(queries, own, table, drawn, 0.07), queries, estimator)
    torch.testing.assert_close(found[0], full[0], rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("replacement", [True, False])
def test_fused__makes_the_draw_that_is_given_otherwise(sums, replacement):
    device = device_of(sums)
    queries, own, table, _ = problem(2, 4, 8, 300, 1, device=device)
    rows = torch.tensor([7, 299, 0, 8], device=device)
    exclude = torch.tensor([7, -1, 0, 299], device=device)
    draw = Draw(rows, exclude, 300, 101, seed=2**40 + 5, step=2**33 + 1, replacement=replacement)
    made = make_contrast(name(sums), queries, own, table, draw, 0.07)
    given = make_contrast(name(sums), queries, own, table, draw.all(), 0.07)
    assert isinstance(made.draw, Draw) == replacement
    for estimator in ESTIMATORS:
        pair = [value_and_gradient(contrast, queries, estimator) for contrast in (made, given)]
        for first, second in zip(*pair, strict=True):
            torch.testing.assert_close(first, second, rtol=0, atol=0)


def name(sums):
    return "triton" if sums is triton_kernel else "blocked"


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_fused__one_negative_may_take_almost_all_of_the_softmax(sums, estimator):
    """h of a negative rounds to 1 − 1e-6 and nearer: a query that is one of the drawn rows."""
    queries, own, table, drawn = problem(2, 3, 16, 80, 60, device=device_of(sums))
    table[drawn[:, 21]] = queries.detach()[0]
    queries = queries.detach().requires_grad_()
    found = value_and_gradient(FusedContrast(queries, own, table, drawn, 0.03, sums), queries,
                               estimator)  # fmt: skip
    exact = queries.detach().double().requires_grad_()
    oracle = PlainContrast(exact, own.double(), table.double(), drawn, 0.03)
    expected = value_and_gradient(oracle, exact, estimator)
    # Scores near 1/τ = 33 have float32 errors of 2e-6, which gradients divide by τ.
    torch.testing.assert_close(found[0].double(), expected[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found[1].double(), expected[1], rtol=1e-4, atol=1e-4)


def test_fused__sums_of_exponentials(sums):
    queries, own, table, drawn = problem(2, 3, 16, 80, 60, device=device_of(sums))
    found = FusedContrast(queries, own, table, drawn, 0.07, sums).log_sums()
    expected = PlainContrast(queries, own, table, drawn, 0.07).log_sums()
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


def test_fused__refuses_a_second_derivative():
    queries, *rest = problem(2, 3, 16, 80, 60)
    values = FusedContrast(queries, *rest, 0.07, blocked).loss("info_nce")
    with pytest.raises(RuntimeError, match=r"twice.*LOSS.pirl_loss.scores to plain"):
        torch.autograd.grad(values.sum(), queries, create_graph=True)


def make_loss(**settings):
    config = {"num_train_samples": 400, "embedding_dim": 8, "num_negatives": 50}
    return PIRLLoss.from_config({"name": "pirl_loss", **config, **settings})


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


def test_contrast__is_chosen_by_table_and_draw():
    def chosen(rows, **options):
        draw = Draw(torch.arange(3), torch.arange(3), rows, 50, seed=0, step=0, **options)
        contrast = make_contrast("auto", *problem(2, 3, 8, rows, 1)[:3], draw, 0.07)
        return getattr(contrast, "sums", None)

    assert chosen(251) is blocked
    assert chosen(250) is None  # the whole table is scored
    assert chosen(251, per_batch=True) is None  # one draw, one matrix product
    assert chosen(251, replacement=False) is blocked


def test_contrast__refuses_triton_where_it_cannot_run(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    queries, *rest = problem(2, 3, 8, 30, 5)
    with pytest.raises(ValueError, match="scores = triton on cpu: expected a CUDA device"):
        make_contrast("triton", queries, *rest, 0.07)


def test_blocked__never_holds_all_drawn_rows():
    """Peak memory of autograd's graph and of the pass: nothing of B × N × D, nor of B × N."""
    queries, own, table, _ = problem(2, 8, 64, 12_000, 1)
    draw = Draw(torch.arange(8), torch.arange(8), 12_000, 2000, seed=0, step=0)
    sizes = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            made = result if isinstance(result, (tuple, list)) else [result]
            sizes.extend(tensor.numel() for tensor in made if isinstance(tensor, torch.Tensor))
            return result

    with Watch():
        make_contrast("auto", queries, own, table, draw, 0.07).loss("info_nce").sum().backward()
    assert max(sizes) <= 2000 * 64  # one data point's rows
