"""Frozen features: where they are computed."""

import torch

from pirl_plugin.evaluation.features import trunk_features
from pirl_plugin.models.resnet import new_trunk


def test_trunk_features__take_a_batch_at_a_time_to_the_trunk():
    """All at once they filled a GPU: 100,000 images of 128 px take 4.9 GB."""
    trunk = new_trunk({"DEPTH": 10, "WIDTH_MULTIPLIER": 0.25}).to("meta").eval()
    images = torch.zeros(5, 3, 32, 32, dtype=torch.uint8)
    features = trunk_features(trunk, images, batch=2)
    assert (features.device.type, features.shape) == ("meta", (5, 128))
