"""Frozen features: where they are computed."""

import pytest
import torch
from torchvision.transforms.v2 import functional as tv

from pirl_plugin.evaluation.features import centre_crop, trunk_features
from pirl_plugin.models.resnet import new_trunk


def test_trunk_features__take_a_batch_at_a_time_to_the_trunk():
    """All at once they filled a GPU: 100,000 images of 128 px take 4.9 GB."""
    trunk = new_trunk({"DEPTH": 10, "WIDTH_MULTIPLIER": 0.25}).to("meta").eval()
    images = torch.zeros(5, 3, 32, 32, dtype=torch.uint8)
    features = trunk_features(trunk, images, batch=2)
    assert (features.device.type, features.shape) == ("meta", (5, 128))


@pytest.mark.parametrize("shape", [(3, 2, 20_000), (3, 20_000, 2)])
def test_centre_crop__of_a_thin_image_takes_no_more_than_its_middle(shape, monkeypatch):
    """Resized whole, it took gigabytes."""
    resized = []
    resize = tv.resize
    monkeypatch.setattr(
        tv, "resize", lambda image, *a, **k: resized.append(image) or resize(image, *a, **k)
    )
    image = torch.zeros(shape, dtype=torch.uint8)
    image[:, shape[1] // 2 - 4 : shape[1] // 2 + 4, shape[2] // 2 - 4 : shape[2] // 2 + 4] = 200
    assert centre_crop(image, 8).eq(200).all()
    assert sorted(resized[0].shape) == [2, 3, 8]
