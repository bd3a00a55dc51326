"""The draw of negatives: exact exclusion, uniformity, and a pure function of (seed, step, row)."""

import pytest
import torch
from scipy.stats import chisquare

from pirl_plugin.memory import Draw, draw_negatives, negatives
from pirl_plugin.memory.philox import philox4x32


def test_philox__gives_the_published_test_vectors():
    # Random123's kat_vectors: philox4x32 10 rounds, all words zero, and all words ones.
    zero = torch.zeros(1, dtype=torch.int64)
    ones = zero + 0xFFFFFFFF
    words = torch.stack(philox4x32((zero,) * 4, (0, 0))).flatten().tolist()
    assert words == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    words = torch.stack(philox4x32((ones,) * 4, (0xFFFFFFFF, 0xFFFFFFFF))).flatten().tolist()
    assert words == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]


@pytest.mark.parametrize("replacement", [True, False])
@pytest.mark.parametrize("per_batch", [True, False])
def test_draw__never_holds_the_row_itself(replacement, per_batch):
    rows = torch.tensor([0, 3, 9, 3])
    for step in range(200):
        drawn = draw_negatives(
            rows, 10, 6, seed=1, step=step, replacement=replacement, per_batch=per_batch
        )
        assert drawn.shape == (4, 6)
        assert drawn.min() >= 0
        assert drawn.max() <= 9
        assert not (drawn == rows[:, None]).any()
        if not replacement:
            assert all(row.unique().numel() == 6 for row in drawn)


@pytest.mark.parametrize("replacement", [True, False])
@pytest.mark.parametrize("per_batch", [True, False])
def test_draw__is_uniform_over_the_others(replacement, per_batch):
    rows = torch.tensor([4])
    drawn = torch.cat(
        [
            draw_negatives(
                rows, 11, 5, seed=7, step=step, replacement=replacement, per_batch=per_batch
            )
            for step in range(4000)
        ]
    )
    counts = drawn.flatten().bincount(minlength=11)
    assert counts[4] == 0
    others = torch.cat([counts[:4], counts[5:]]).numpy()
    assert chisquare(others).pvalue > 1e-3


@pytest.mark.parametrize("replacement", [True, False])
@pytest.mark.parametrize("per_batch", [True, False])
def test_draw__for_no_image_is_empty(replacement, per_batch):
    none = torch.empty(0, dtype=torch.int64)
    drawn = draw_negatives(
        none, 10, 6, seed=1, step=0, replacement=replacement, per_batch=per_batch
    )
    assert drawn.shape == (0, 6)


def test_draw__for_the_batch_reaches_all_but_its_rows():
    rows, exclude = torch.tensor([3, 0, 3, 5]), torch.tensor([3, -1, 3, 5])
    drawn = draw_negatives(
        rows, 7, 5, seed=1, step=0, replacement=False, per_batch=True, exclude=exclude
    )
    assert sorted(drawn[0].tolist()) == [0, 1, 2, 4, 6]
    with pytest.raises(ValueError, match=r"expected at least 6 other images .* there are 5 of 7"):
        draw_negatives(
            rows, 7, 6, seed=1, step=0, replacement=False, per_batch=True, exclude=exclude
        )


def test_draw__does_not_depend_on_the_batch_around_a_row():
    joined = draw_negatives(torch.arange(8), 1000, 65, seed=3, step=5)
    halves = [draw_negatives(r, 1000, 65, seed=3, step=5) for r in torch.arange(8).split(3)]
    assert torch.equal(joined, torch.cat(halves))


def test_draw__changes_with_seed_step_and_row():
    base = draw_negatives(torch.tensor([1]), 10_000, 64, seed=0, step=0)
    for seed, step, row in ((1, 0, 1), (0, 1, 1), (0, 0, 2), (0, 2**40, 1)):
        other = draw_negatives(torch.tensor([row]), 10_000, 64, seed=seed, step=step)
        assert (other == base).float().mean() < 0.1


@pytest.mark.parametrize(
    ("num_rows", "count", "replacement"), [(1, 1, True), (5, 5, False), (2, 2, False)]
)
def test_draw__says_when_there_are_too_few_images(num_rows, count, replacement):
    with pytest.raises(ValueError, match=r"num_negatives = \d+: expected at least \d+ other"):
        draw_negatives(torch.tensor([0]), num_rows, count, seed=0, step=0, replacement=replacement)


@pytest.mark.parametrize("bound", [1, 10, 2**31 - 1, torch.tensor([[10], [2**31 - 1], [77]])])
@pytest.mark.parametrize("count", [1, 2, 33])
def test_draw__is_the_same_compiled_and_with_tensors(bound, count):
    rows = torch.tensor([0, 5, 2**32 - 1])
    for seed, step in ((0, 0), (3, 2**40 + 5), (2**63 - 1, 9)):
        compiled = negatives._draw(rows, bound, count, seed, step)
        tensors = negatives._draw_on_device(rows, bound, count, seed, step)
        assert torch.equal(compiled, tensors)


def test_draw__of_one_data_point_is_its_line_of_all():
    rows = torch.tensor([4, 0, 99])
    draw = Draw(rows, torch.tensor([4, -1, 99]), 100, 21, seed=1, step=2)
    assert torch.equal(torch.stack([draw.of(image) for image in range(3)]), draw.all())
