"""Network records: name, expected images, and the origin of each value."""

import pytest
import torch
import torchvision
from torch import nn

import pirl_plugin as pirl
from pirl_plugin.models.network_config import NetworkConfig, network_config_of
from pirl_plugin.models.resnet import WideResNet
from pirl_plugin.models.timm_trunk import TimmTrunk
from pirl_plugin.models.trunks import untrained

PHOTOS = list(torch.full((6, 3, 60, 80), 128, dtype=torch.uint8))


def test_values__keep_separate_origins():
    config = NetworkConfig().with_values("run", size=64, mean=[0.5, 0.5, 0.5])
    assert config.defaults == ["std"]
    assert str(config) == "64 px (run), mean 0.5 0.5 0.5 (run), std 0.229 0.224 0.225 (default)"
    assert config.with_values("option", size=32).origins["size"] == "option"
    assert config.with_channels(2).origins == {"size": "run"}


def test_record__omits_defaults(tmp_path):
    trunk = WideResNet(10, 0.125)
    trunk.network_config = trunk.network_config.with_values("run", size=48)
    pirl.save_trunk(trunk, tmp_path / "trunk.torch")
    found = pirl.load_trunk(tmp_path / "trunk.torch").network_config
    assert found.origins == {"size": "file"}
    assert (found.size, found.mean) == (48, NetworkConfig().mean)


@pytest.mark.parametrize(
    "values", [{"mean": [0.5]}, {"std": [1, 0, 1]}, {"std": [-1, 1, 1]}, {"mean": [0, 0, 0, 0]}]
)
def test_with_values__refuses_unusable_statistics(values):
    with pytest.raises(ValueError, match=r"`mean` and `std` = .*: expected 3 values each, std > 0"):
        NetworkConfig("test_vit").with_values("test", **values)


def test_with_values__refuses_other_dtypes():
    message = "dtype = 'int8': expected one of uint8, uint16, float32"
    with pytest.raises(ValueError, match=message):
        NetworkConfig("test_vit").with_values("test", dtype="int8")


@pytest.mark.parametrize("changed", [{"depth": 10}, {"width": 0.5}, {"small_stem": True}])
def test_timm_name__is_empty_for_unusual_resnets(changed):
    options = {"depth": 18, "width": 1, "small_stem": False, **changed}
    assert not NetworkConfig("pirl_resnet", options).timm_name


@pytest.mark.parametrize(
    ("name", "options", "size", "mean"),
    [
        ("test_vit", {}, 160, 0.485),  # the mean belongs to timm's weights, which are absent here
        ("test_vit", {"img_size": 48}, 48, 0.485),
        ("test_vit", {"img_size": [48, 48]}, 48, 0.485),
        ("test_vit.r160_in1k", {}, 160, 0.5),  # the tag names the weights
    ],
)
def test_timm__gives_size_and_statistics_if_tagged(name, options, size, mean):
    config = TimmTrunk(name, options).network_config
    assert (config.size, config.mean[0]) == (size, mean)
    assert config.origins["size"] == f"timm's {name}"


def test_pirl__records_image_size_and_statistics():
    def floats(image):
        return {"images": torch.zeros(3, 40, 40)}

    expected = {pirl.ImageViews(image_size=32): [], floats: ["mean", "std"]}
    for views, defaults in expected.items():
        trunk = pirl.WideResNet(10, width=0.125)
        pirl.PIRL(trunk, pirl.ImageDataset(PHOTOS, views))
        assert trunk.network_config.size == (40 if defaults else 32)
        assert trunk.network_config.defaults == defaults


def test_pirl__normalizes_as_trunk_expects():
    trunk = pirl.WideResNet(10, width=0.125)
    trunk.network_config = trunk.network_config.with_values("test", mean=[0.9] * 3, std=[0.3] * 3)
    seen = []
    trunk.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    pirl.PIRL(trunk, pirl.ImageDataset(PHOTOS, pirl.ImageViews(image_size=32)))
    assert seen[0].mean().item() == pytest.approx((0 - 0.9) / 0.3)  # a black image
    assert trunk.network_config.mean == (0.9,) * 3


def test_save_trunk__records_torchvision_and_timm_networks(tmp_path):
    import timm

    resnet = torchvision.models.resnet18()
    resnet.fc = nn.Identity()
    vit = timm.create_model("vit_tiny_patch16_224", num_classes=0, dynamic_img_size=True)
    images = torch.randn(1, 3, 32, 32)
    for trunk in (resnet, vit):
        pirl.PIRL(trunk, pirl.ImageDataset(PHOTOS, pirl.ImageViews(image_size=32)))
        pirl.save_trunk(trunk, tmp_path / "trunk.torch")
        again = pirl.load_trunk(tmp_path / "trunk.torch")
        assert again.network_config.size == 32
        with torch.no_grad():
            torch.testing.assert_close(again(images), trunk.eval()(images))


def test_untrained__keeps_record():
    trunk = WideResNet(10, 0.125)
    trunk.network_config = trunk.network_config.with_values("test", size=32)
    assert untrained(trunk).network_config is trunk.network_config
    assert network_config_of(nn.DataParallel(trunk)) is trunk.network_config
