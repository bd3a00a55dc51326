"""Negative draws: keys, bounds, and images excluded from their own negatives."""

import pytest
import torch

from pirl_plugin.method.negatives import (
    _integers,
    _integers_of_tensors,
    _words,
    draw_for_batch,
    draw_for_each,
    draw_negatives,
)

pytestmark = pytest.mark.tensors


def test_draw__is_keyed_by_seed_step_and_index():
    index = torch.tensor([3, 14, 3, 15])
    drawn = draw_negatives(index, 50, 200, seed=7, step=2)
    assert torch.equal(drawn[0], drawn[2])
    assert not torch.equal(drawn[0], drawn[1])
    assert torch.equal(drawn[1:2], draw_negatives(index[1:2], 50, 200, seed=7, step=2))
    # The seed is taken modulo 2⁶⁴.
    assert torch.equal(drawn, draw_negatives(index, 50, 200, seed=7 + 2**64, step=2))
    for seed, step in ((8, 2), (7, 3), (7 + 2**63, 2)):
        assert (drawn != draw_negatives(index, 50, 200, seed=seed, step=step)).float().mean() > 0.9


@pytest.mark.parametrize(
    ("settings", "first", "second"),
    [
        ({}, [826, 395, 851, 791], [901, 322, 295, 314]),
        ({"per_batch": True}, [811, 372, 332, 709], [811, 372, 332, 709]),
        ({"replacement": False}, [84, 181, 554, 140], [422, 118, 455, 711]),
    ],
)
def test_draw__matches_earlier_versions(settings, first, second):
    drawn = draw_negatives(torch.tensor([3, 0]), 1000, 4, seed=7, step=2, **settings)
    assert drawn.tolist() == [first, second]


@pytest.mark.parametrize("replacement", [True, False])
def test_draw__is_uniform_over_other_images(replacement):
    index = torch.arange(20)
    counts = torch.zeros(20, 20)
    for step in range(300):
        drawn = draw_negatives(index, 20, 10, seed=1, step=step, replacement=replacement)
        if not replacement:
            assert all(len(line.unique()) == 10 for line in drawn)
        counts.scatter_add_(1, drawn, torch.ones(drawn.shape))
    assert (counts.diag() == 0).all()
    others = counts[~torch.eye(20, dtype=torch.bool)]  # 3000/19 = 158 each, deviation about 12
    assert others.mean().item() == pytest.approx(3000 / 19)
    assert (others - others.mean()).abs().max() < 65
    assert others.std() < 16


@pytest.mark.parametrize("replacement", [True, False])
def test_per_batch_draw__excludes_batch_images(replacement):
    index = torch.tensor([0, 4, 4, 9])
    drawn = draw_negatives(index, 10, 7, seed=0, step=0, replacement=replacement, per_batch=True)
    assert drawn.stride(0) == 0
    assert not set(drawn[0].tolist()) & {0, 4, 9}
    if not replacement:
        assert sorted(drawn[0].tolist()) == [1, 2, 3, 5, 6, 7, 8]


def test_draw__excludes_only_the_given_row():
    itself = torch.tensor([-1, 0])
    drawn = draw_for_each(torch.tensor([100, 101]), itself, 2, 64, 0, 0, True)
    assert set(drawn[0].tolist()) == {0, 1}
    assert set(drawn[1].tolist()) == {1}


def test_kernel__matches_tensor_implementation():
    keys, bounds = torch.tensor([1, -5, 2**62]), torch.tensor([10, 1_281_167, 2**31 - 1])
    lines = zip(_words(keys, 1000).tolist(), bounds.tolist(), strict=True)
    expected = [[(word % 2**64) * bound >> 64 for word in words] for words, bound in lines]
    assert _integers(keys, bounds, 1000).tolist() == expected
    assert _integers_of_tensors(keys, bounds, 1000).tolist() == expected


def test_per_batch_draw__counts_repeated_images_once():
    """Repeats exclude nothing more: 3 of 5 images are free, though the batch has 6 entries."""
    index = torch.tensor([2, 4, 2, -1, 4, -1])
    for replacement in (True, False):
        drawn = draw_for_batch(index, 5, 3, 0, 0, replacement)
        assert set(drawn[0].tolist()) <= {0, 1, 3}
    assert sorted(drawn[0].tolist()) == [0, 1, 3]  # without replacement
    with pytest.raises(ValueError, match="of 2 images, only 0 can be drawn"):
        draw_negatives(torch.tensor([0, 1, 1]), 2, 3, seed=0, step=0, per_batch=True)


def test_draw__refuses_impossible_draws():
    with pytest.raises(ValueError, match="num_negatives = 10: of"):
        draw_negatives(torch.tensor([0]), 10, 10, seed=0, step=0, replacement=False)
    # An int32 index would truncate the 64-bit keys and change the draw.
    with pytest.raises(
        ValueError, match=r"index is torch\.int32 of shape \(1,\): expected an int64"
    ):
        draw_negatives(torch.tensor([0]).int(), 10, 4, seed=0, step=0)
    for row in (-1, 10):
        with pytest.raises(ValueError, match="expected image numbers from 0 to 9"):
            draw_negatives(torch.tensor([row]), 10, 10, seed=0, step=0)
