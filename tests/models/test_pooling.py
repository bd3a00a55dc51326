"""Layer pooling: the paper's windows for 224-px images, the same grid for other sizes."""

import pytest
import torch
from torch import nn

from pirl_plugin.models.trunks import GridAvgPool2d

pytestmark = pytest.mark.tensors


@pytest.mark.parametrize(
    ("grid", "side", "window"),
    # App. C, ResNet-50: layer sizes 112, 56, 28, 14, 7; windows as size, stride, padding
    [(12, 112, (10, 10, 4)), (6, 56, (16, 8, 0)), (4, 28, (13, 5, 0)), (3, 14, (8, 3, 0))],
)
def test_pooling__uses_the_papers_windows_at_224_px(grid, side, window):
    features = torch.randn(2, 3, side, side)
    pool = GridAvgPool2d([grid, grid], *window)
    assert torch.equal(pool(features), nn.AvgPool2d(*window)(features))
    other = torch.randn(2, 3, side * 2 // 7, side * 2 // 7)  # for 64-px images
    assert torch.equal(pool(other), nn.AdaptiveAvgPool2d(grid)(other))


def test_pooling__keeps_grid_for_non_square_images():
    wide = torch.randn(1, 3, 7, 14)  # windows would give 2 × 9
    assert torch.equal(GridAvgPool2d([2, 2], 6)(wide), nn.AdaptiveAvgPool2d(2)(wide))
