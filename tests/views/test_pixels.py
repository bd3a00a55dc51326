"""Images normalised for a model: the shapes that are taken."""

import pytest
import torch

from pirl_plugin.views.pixels import normalize_images


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        ((3, 8, 8), "expected .* RGB"),
        ((2, 8, 8, 3), "expected .* RGB"),
        ((2, 1, 8, 8), "expected .* RGB"),  # was broadcast to three
        ((2, 9, 3, 8, 8), r"expected uint8 \(B, 3, H, W\)"),
    ],
)
def test_normalize_images__refuses_other_shapes(shape, says):
    with pytest.raises(ValueError, match=says):
        normalize_images(torch.zeros(shape, dtype=torch.uint8))


def test_normalize_images__refuses_other_types():
    images = torch.zeros(1, 3, 2, 2, dtype=torch.uint8)
    with pytest.raises(ValueError, match=r"images are torch.float32 .*: expected uint8"):
        normalize_images(images.float())
