"""Embedding distances between images and transformed versions, computed by hand."""

import math

import pytest
import torch
from invariance_measure import (
    invariance_distances,
    summarize_distances,
    unit_distances,
)


def test_unit_distances__match_angles():
    east = torch.tensor([2.0, 0.0])
    others = torch.tensor([[5.0, 0.0], [0.0, 1.0], [-3.0, 0.0], [1.0, 1.0]])
    expected = torch.tensor([0.0, math.sqrt(2), 2.0, math.sqrt(2 - math.sqrt(2))])
    torch.testing.assert_close(unit_distances(east, others), expected)


def test_unit_distances__are_exact_for_nearly_equal_vectors():
    vector = torch.randn(128, generator=torch.Generator().manual_seed(0))
    assert unit_distances(vector, 3 * vector) < 1e-6  # √(2 − 2 cos) would give about 3e-4


def test_invariance_distances__pair_own_and_other_versions():
    image = torch.eye(3)
    transformed = torch.stack([torch.eye(3), torch.eye(3).roll(1, 0)], dim=1)  # own and other's
    found = invariance_distances(image, transformed)
    root = math.sqrt(2)
    torch.testing.assert_close(found[0], torch.tensor([0, root] * 3))
    # Image i versus versions of image i − 1: e(i−1) and e(i−2), never e(i).
    torch.testing.assert_close(found[1], torch.full((6,), root))


def test_invariance_distances__compare_across_classes():
    classes = torch.eye(3).repeat_interleave(4, dim=0)  # 12 images in three classes
    found = invariance_distances(classes, classes[:, None])
    torch.testing.assert_close(found[1], torch.full((12,), math.sqrt(2)))


def test_summarize_distances__matches_hand_computation():
    found = summarize_distances(torch.tensor([0.0, 1.0, 1.0, 2.0]), bins=2)
    assert (found["mean"], found["std"]) == (1.0, pytest.approx(math.sqrt(0.5)))
    assert (found["quartile_1"], found["median"], found["quartile_3"]) == (0.75, 1.0, 1.25)
    assert found["density"] == [0.25, 0.75]  # one of four is below 1; bins are 1 wide
