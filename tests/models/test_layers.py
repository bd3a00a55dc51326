"""Features from any layer."""

import pytest
import torch

from pirl_plugin.models.resnet import WideResNet
from pirl_plugin.models.timm_trunk import TimmTrunk
from pirl_plugin.models.trunks import layer_features, pooled_features


def test_resnet_layers__match_the_papers_grids():
    trunk = WideResNet(18).eval()
    names = trunk.layers
    images = torch.randn(2, 3, 224, 224)
    with torch.no_grad():
        features = layer_features(trunk, images, names)
        whole = trunk.named_features(images, ["res4", "flatten"])
    # Channels times grid cells, as in configs/config/pirl/linear/resnet18.yaml.
    widths = [64 * 144, 64 * 144, 128 * 64, 256 * 36, 512 * 16, 512]
    assert [part.shape for part in features] == [(2, width) for width in widths]
    # For 14 × 14 positions on a 6 × 6 grid, the first cell is the mean over the first 3 × 3.
    cell = features[names.index("res4")].unflatten(1, (256, 6, 6))[:, :, 0, 0]
    torch.testing.assert_close(cell, whole[0][:, :, :3, :3].mean(dim=(2, 3)))
    assert torch.equal(features[-1], whole[1])


def test_layers__grid_is_at_most_the_layer_size():
    with torch.no_grad():
        trunk = WideResNet(18).eval()
        (features,) = layer_features(trunk, torch.randn(1, 3, 64, 64), ["res5"])
    assert features.shape == (1, 512 * 2 * 2)


@pytest.mark.parametrize("name", ["resnet18", "vit_tiny_patch16_224", "efficientnet_lite0"])
def test_timm_layers__are_stages(name):
    trunk = TimmTrunk(name, {}).eval()
    images = torch.randn(1, 3, 224, 224)
    with torch.no_grad():
        *stages, last = layer_features(trunk, images, trunk.layers)
        torch.testing.assert_close(last, trunk(images), rtol=1e-4, atol=1e-4)
    assert len(stages) >= 5
    assert all(2000 < stage.shape[1] < 16_400 for stage in stages)


def test_pooled_features__are_the_one_tensor_or_the_named_one():
    features = torch.ones(2, 3)
    for output in (features, [features], (features,), {"out": features}):
        assert pooled_features(output) is features
    assert pooled_features({"pooler_output": features, "hidden": torch.ones(2, 4, 3)}) is features
    for output in ((features, None), {"a": features, "b": features}, None, [None], {}):
        with pytest.raises(ValueError, match="without pooled features: expected a tensor"):
            pooled_features(output)


def test_layers__refuse_unknown_name():
    with pytest.raises(ValueError, match="layer = 'res6': expected one of conv1, res2"):
        layer_features(WideResNet(10), torch.zeros(1, 3, 32, 32), ["res6"])
