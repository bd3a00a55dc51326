"""Where frozen features are computed, and how much memory they need."""

import torch
from torchvision.transforms.v2 import functional as tv

from pirl_plugin.evaluation.feature_store import store_batches
from pirl_plugin.evaluation.features import Batch, compute_features
from pirl_plugin.images.decode import MAX_PIXELS
from pirl_plugin.images.map_source import MapSource
from pirl_plugin.models.network_config import NetworkConfig
from pirl_plugin.models.preprocessing import center_crop
from pirl_plugin.models.resnet import WideResNet


def test_features__move_one_batch_at_a_time():
    """All images at once filled the GPU: 100,000 128-px images take 4.9 GB."""
    trunk = WideResNet(10, 0.125).eval()
    images = MapSource([torch.zeros(3, 32, 32, dtype=torch.uint8)] * 5)
    batches = compute_features(
        lambda inputs: [trunk(inputs)], images, NetworkConfig(size=32), range(5), batch=2
    )
    parts = [part for (part,), *_ in batches]
    assert [part.shape[0] for part in parts] == [2, 2, 1]


# torch 2.7 may round the pixels of a part differently from those of the complete image.
_ROUNDING = 0 if torch.__version__ >= (2, 8) else 1


def test_center_crop__reads_only_the_middle_of_a_strip():
    """A 1 × 40,000 px strip was resized to 256 × 10 million px (7.9 GB) before cropping."""
    largest = torch.zeros(3, 1, 1, dtype=torch.uint8).expand(3, MAX_PIXELS, 1)
    assert not center_crop(largest, 224).any()
    generator = torch.Generator().manual_seed(0)
    for height, width in ((400, 2), (2, 400), (90, 1), (60, 40)):
        image = torch.randint(256, (3, height, width), generator=generator, dtype=torch.uint8)
        resized = tv.resize(image, [32], antialias=True)
        difference = center_crop(image, 28).int() - tv.center_crop(resized, [28, 28]).int()
        assert difference.abs().max() <= _ROUNDING


def test_center_crop__is_the_one_behind_published_figures():
    """224 px from a shorter side of 256 px, as in VISSL's benchmarks; timm is told the same."""
    image = torch.arange(256, dtype=torch.uint8).expand(3, 256, 256)
    assert torch.equal(center_crop(image, 224), image[:, 16:240, 16:240])


def test_parts__are_not_written_through_planted_links(tmp_path):
    parts = tmp_path / "e.npz.unfinished"
    victim = tmp_path / "victim"
    victim.mkdir()
    parts.symlink_to(victim)
    readable = torch.ones(1, dtype=torch.bool)
    batch = Batch([torch.ones(1, 2)], readable, torch.zeros(1, dtype=torch.int64))
    next(store_batches(parts, {}, 2, lambda rows: [batch]))
    assert list(victim.iterdir()) == []
    (parts / "1.npz").symlink_to(victim / "1.npz")  # where the next batch goes
    assert len(list(store_batches(parts, {}, 2, lambda rows: [batch]))) == 2  # resumes
    assert list(victim.iterdir()) == []
