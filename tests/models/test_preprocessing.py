"""Normalization of images and patches."""

import math

import pytest
import torch

from pirl_plugin.models.preprocessing import normalize_images

pytestmark = pytest.mark.tensors


@pytest.mark.parametrize(
    ("dtype", "white"), [(torch.uint8, 255), (torch.uint16, 1), (torch.float32, 1)]
)
def test_normalize_images__keeps_units_of_other_dtypes(dtype, white):
    images = torch.tensor([200, 100, 50, 0]).to(dtype).view(1, 4, 1, 1)
    before = images.clone()
    mean = [0.5, 0.25, 0.5, 0.25]
    std = [0.5, 0.5, 0.25, 0.25]
    expected = (torch.tensor([200.0, 100, 50, 0]) / white - torch.tensor(mean)) / torch.tensor(std)
    torch.testing.assert_close(normalize_images(images, mean, std).flatten(), expected)
    assert torch.equal(images, before)


def test_normalize_images__refuses_invalid_shapes(subtests):
    for shape, says in (
        ((3, 8, 8), r"expected uint8, .* \(B, C, H, W\)"),
        ((2, 8, 8, 3), "3 and 3 values, .* 8 channels"),
        ((2, 1, 8, 8), "3 and 3 values, .* 1 channel\\."),  # used to be broadcast to three channels
        ((2, 9, 3, 8, 8), "collate_fn=collate_views"),
    ):
        with subtests.test(shape=shape), pytest.raises(ValueError, match=says):
            normalize_images(torch.zeros(shape, dtype=torch.uint8))


def test_normalize_images__refuses_constants_in_other_units(subtests):
    for constants in (
        {"std": [0.2]},
        {"std": [math.nan] * 3},
        {"mean": [0.5]},
        {"mean": [math.inf, 0, 0]},
        {"mean": [123.7, 116.3, 103.5]},  # for levels from 0 to 255
        {"std": [58.4, 57.1, 57.4]},
    ):
        with subtests.test(constants=constants):
            with pytest.raises(ValueError, match="`mean` and `std`"):
                normalize_images(torch.zeros(1, 3, 2, 2, dtype=torch.uint8), **constants)


def test_normalize_images__refuses_other_dtypes():
    images = torch.zeros(1, 3, 2, 2, dtype=torch.uint8)
    with pytest.raises(ValueError, match=r"images: expected uint8, .* got torch.int64"):
        normalize_images(images.long())
