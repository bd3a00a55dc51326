"""Layer pooling: the paper's windows for 224-px images, the same grid for others."""

import pytest
import torch
from torch import nn

from pirl_plugin.models.trunks import GridAvgPool2d

pytestmark = pytest.mark.tensors


@pytest.mark.parametrize(
    ("grid", "side", "window"),
    # App. C on ResNet-50: layer sides 112, 56, 28, 14, 7; windows as side, stride, padding
    [(12, 112, (10, 10, 4)), (6, 56, (16, 8, 0)), (4, 28, (13, 5, 0)), (3, 14, (8, 3, 0))],
)
def test_pooling__of_224_px_has_the_papers_windows(grid, side, window):
    features = torch.randn(2, 3, side, side)
    pool = GridAvgPool2d([grid, grid], *window)
    assert torch.equal(pool(features), nn.AvgPool2d(*window)(features))
    other = torch.randn(2, 3, side * 2 // 7, side * 2 // 7)  # of 64 px
    assert torch.equal(pool(other), nn.AdaptiveAvgPool2d(grid)(other))


def test_pooling__of_an_image_that_is_not_square():
    wide = torch.randn(1, 3, 7, 14)  # windows would give 2 × 9
    assert torch.equal(GridAvgPool2d([2, 2], 6)(wide), nn.AdaptiveAvgPool2d(2)(wide))
