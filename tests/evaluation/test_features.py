"""Frozen features: where they are computed."""

import torch

from pirl_plugin.evaluation.features import compute_features
from pirl_plugin.images.sources import MapSource
from pirl_plugin.models.preprocessing import Preprocessing
from pirl_plugin.models.resnet import ResNetTrunk


def test_features__take_a_batch_at_a_time_to_the_trunk():
    """All at once they filled a GPU: 100,000 images of 128 px take 4.9 GB."""
    trunk = ResNetTrunk(10, 0.25).to("meta").eval()
    images = MapSource([torch.zeros(3, 32, 32, dtype=torch.uint8)] * 5)
    batches = compute_features([trunk], [images], Preprocessing(32), range(5), batch=2)
    parts = [part for (part,), _ in batches]
    assert [part.shape[0] for part in parts] == [2, 2, 1]
    assert {part.device.type for part in parts} == {"meta"}
