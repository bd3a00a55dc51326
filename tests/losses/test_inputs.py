"""Rows that are given to the loss."""

import torch

from pirl_plugin.losses.inputs import find_outside


def test_find_outside__leaves_one_draw_for_the_batch_one():
    """The engines read its rows once for the whole batch."""
    shared = torch.arange(7).expand(3, -1)
    outside, negatives = find_outside(torch.tensor([8, 9, 10]), shared, 40)
    assert not outside
    assert torch.equal(negatives, shared)
    assert negatives.stride(0) == 0
