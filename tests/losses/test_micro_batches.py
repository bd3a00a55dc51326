"""A batch in parts is the whole batch: loss, gradient, Z, draws and bank."""

from contextlib import nullcontext

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

from pirl_plugin.losses.micro_batches import WholeBatch
from pirl_plugin.losses.pirl_loss import PIRLLoss
from tests.helpers.loss_cases import embeddings, make_loss
from tests.helpers.processes import run_in_processes
from tests.helpers.two_heads import DIM, TwoHeads

ROWS, BATCH, STEPS = 50, 24, 3


def train(rank, world_size, parts, settings):
    """A few steps on this rank's share of each batch, in parts.

    Returns losses (this rank's), the gradient of the last step, parameters, bank, Z, terms of the
    last step, the rows drawn: (step, row) → (N,), and what was compared in the last step.
    """
    loss = PIRLLoss(ROWS, embedding_dim=DIM, num_negatives=7, **settings)
    drawn = {}
    draw = loss.bank.draw

    def noted(rows, count, **options):
        made = draw(rows, count, **options)
        if not made.per_batch:
            drawn.update(
                {(made.step, int(r)): d for r, d in zip(made.rows, made.all(), strict=True)}
            )
        return made

    loss.bank.draw = noted
    model = TwoHeads()
    wrapped = DistributedDataParallel(model) if world_size > 1 else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    generator = torch.Generator().manual_seed(1)
    values = []
    for _ in range(STEPS):
        images = torch.randn(BATCH, 6, generator=generator)
        target = torch.randint(0, ROWS, (BATCH,), generator=generator)
        target[1] = target[10]  # a repeated row, in two parts
        target[[0, 2, 3, 4, 5, 6]] = -1  # invalid images: one part of four has two of six
        mine = torch.arange(rank, BATCH, world_size)  # as the host deals a batch to its processes
        images, target = images[mine], target[mine]
        optimizer.zero_grad()
        if parts == 1:
            outputs = wrapped(images)
            value = loss(outputs, target)
            value.backward()
        else:
            value, outputs = accumulate(loss, wrapped, model, images, target, parts)
        optimizer.step()
        loss.update(target, outputs[-1])
        values.append(value.detach())
    parameters = list(model.parameters())
    return (
        torch.stack(values),
        [p.grad for p in parameters],
        [p.detach() for p in parameters],
        loss.bank.lookup(torch.arange(ROWS)),
        loss.norm_constant,
        loss.last_step.terms,
        drawn,
        {
            **loss.last_step.queries,
            "positives": loss.last_step.positives,
            "valid": loss.last_step.valid,
        },
    )


def accumulate(loss, wrapped, model, images, target, parts):
    total, outputs = torch.zeros(()), []
    pieces = list(zip(images.chunk(parts), target.chunk(parts), strict=True))
    with loss.micro_batches(target) as whole:
        if whole.needs_norm_constant:
            with torch.no_grad():
                for x, rows in pieces:
                    whole.survey(model(x), rows)
            whole.set_norm_constant()
        for number, (x, rows) in enumerate(pieces, start=1):
            last = number == len(pieces) or not hasattr(wrapped, "no_sync")
            with nullcontext() if last else wrapped.no_sync():
                output = wrapped(x)
                value = loss(output, rows)
                value.backward()
            total += value.detach()
            outputs.append([one.detach() for one in output])
    return total, [torch.cat(head) for head in zip(*outputs, strict=True)]


def assert_equal(results, expected):
    """Results of the ranks, whose losses average to the whole batch's."""
    mean = torch.stack([result[0] for result in results]).mean(dim=0)
    torch.testing.assert_close(mean, expected[0], rtol=1e-5, atol=1e-5)
    for result in results:
        for i in (1, 2):  # gradients, parameters
            torch.testing.assert_close(result[i], expected[i], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(result[3], expected[3], rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(result[4], expected[4], rtol=1e-6, atol=0, equal_nan=True)
    for name, value in expected[5].items():
        mean = torch.stack([result[5][name] for result in results]).mean()
        torch.testing.assert_close(mean, value, rtol=1e-5, atol=1e-5)


SETTINGS = [
    {"estimator": "nce"},
    {"estimator": "nce", "norm_constant_momentum": 0.9},
    {"estimator": "nce", "scores": "blocked", "lambda_invariance": 1.0},
    {"estimator": "nce_softmax", "replacement": False},
    {"estimator": "info_nce", "negatives": "per_batch"},
    {"estimator": "nce", "negatives": "per_batch"},
]


@pytest.mark.parametrize("parts", [2, 4, BATCH])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_micro_batches__add_up_to_the_batch(settings, parts):
    expected = train(0, 1, 1, settings)
    found = train(0, 1, parts, settings)
    assert_equal([found], expected)
    assert found[6].keys() == expected[6].keys()
    torch.testing.assert_close(found[7], expected[7], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("placement", ["replicated", "sharded"])
def test_micro_batches__in_two_processes(placement):
    settings = {"bank": {"placement": placement}}
    expected = run_in_processes(train, 2, 1, settings)
    found = run_in_processes(train, 2, 3, settings)
    for rank in (0, 1):
        torch.testing.assert_close(found[rank][0], expected[rank][0], rtol=1e-5, atol=1e-5)
        assert_equal([found[rank]], expected[rank])
        torch.testing.assert_close(found[rank][7], expected[rank][7], rtol=1e-4, atol=1e-5)


def test_four_processes__draw_as_one_with_four_micro_batches():
    expected = train(0, 1, 4, {})
    results = run_in_processes(train, 4, 1, {})
    assert_equal(results, expected)
    drawn = {key: rows for result in results for key, rows in result[6].items()}
    assert drawn.keys() == expected[6].keys()
    assert len(drawn) > 40
    assert all(torch.equal(rows, expected[6][key]) for key, rows in drawn.items())


def test_micro_batches__move_nothing_before_the_update():
    loss = PIRLLoss(ROWS, embedding_dim=DIM, num_negatives=7)
    before, target = loss.bank.rows.clone(), torch.arange(4)
    outputs = [torch.randn(4, DIM, requires_grad=True) for _ in range(2)]
    with loss.micro_batches(target) as whole:
        assert whole.needs_norm_constant
        whole.survey(outputs, target)
        assert not loss.norm_constant_known
        whole.set_norm_constant()
        assert not whole.needs_norm_constant
        loss([output[:2] for output in outputs], target[:2])
    assert loss.step == 0
    assert torch.equal(loss.bank.rows, before)
    constant = loss.norm_constant.clone()
    fresh = PIRLLoss(ROWS, embedding_dim=DIM, num_negatives=7)
    fresh(outputs, target)
    torch.testing.assert_close(constant, fresh.norm_constant)


def test_micro_batches__are_not_scored_with_an_unknown_z():
    loss = make_loss(norm_constant=None)
    output, rows = embeddings(), torch.arange(5)
    with loss.micro_batches(rows) as whole:
        with pytest.raises(RuntimeError, match="before Z is known: expected survey"):
            loss(output, rows)
        whole.survey(output, rows)
        whole.set_norm_constant()
        assert loss(output, rows).isfinite()


def test_micro_batches__of_rows_that_the_batch_has_not_are_refused():
    loss, output = make_loss(norm_constant=None), embeddings()
    says = "a micro-batch has row 9: expected rows of the batch that micro_batches"
    with loss.micro_batches(torch.tensor([1, -1, 7, 2, 3])) as whole:
        with pytest.raises(ValueError, match=says):
            whole.survey(output, torch.tensor([1, 2, 3, 7, 9]))
        with pytest.raises(ValueError, match="for 4 images: expected"):
            whole.survey(output, torch.arange(4))
        whole.survey(output, torch.tensor([1, -1, 7, 2, 3]))
        whole.set_norm_constant()
        with pytest.raises(ValueError, match=says):
            loss(output, torch.tensor([1, 2, 3, 7, 9]))
    for target, says in (
        (torch.tensor([0, 40]), "row 40 is outside the memory bank"),
        (torch.tensor([0.0]), "target is torch.float32: expected int64"),
    ):
        with pytest.raises(ValueError, match=says), loss.micro_batches(target):
            pass


def test_micro_batches__of_a_rank_without_images_have_no_row():
    loss, none = make_loss(norm_constant=90.0), torch.empty(0, dtype=torch.int64)
    with loss.micro_batches(none):
        assert loss([one[:0] for one in embeddings()], none) == 0
        assert loss([one[:1] for one in embeddings()], torch.tensor([-1])) == 0
        with pytest.raises(ValueError, match="a micro-batch has row 3: expected rows of the batch"):
            loss([one[:1] for one in embeddings()], torch.tensor([3]))


def test_micro_batches__of_another_row_are_nan_where_nobody_asks():
    loss = make_loss(norm_constant=90.0)
    whole = WholeBatch(loss, torch.tensor([1, 7]))
    whole._has = lambda target: torch.isin(target, torch.tensor([1, 7]))  # as on a GPU
    loss._whole = whole
    assert loss([one[:2] for one in embeddings()], torch.tensor([7, 1])).isfinite()
    assert loss([one[:2] for one in embeddings()], torch.tensor([7, 2])).isnan()
