"""Networks for images with other channels or more bits: what they accept and refuse."""

import json

import numpy as np
import pytest
import timm
import torch

import pirl_plugin as pirl
from pirl_plugin.evaluation import embed_command, knn_command
from pirl_plugin.evaluation.features import config_for
from pirl_plugin.images.opening import open_source
from pirl_plugin.models.network_config import NetworkConfig
from pirl_plugin.models.timm_trunk import TimmTrunk


def array(channels, dtype, level):
    values = np.random.default_rng(level).integers(0, 200, (40, 50, channels)) + 20 * level
    return values.astype(dtype)


@pytest.fixture
def network(tmp_path):
    """A timm network for RGB, like a file from elsewhere."""
    torch.manual_seed(0)
    torch.save(timm.create_model("resnet10t").state_dict(), tmp_path / "rgb.pth")
    return ["--timm", "resnet10t", "--checkpoint", str(tmp_path / "rgb.pth"), "--size", "32"]


@pytest.mark.parametrize(
    ("channels", "dtype"), [(1, np.uint16), (3, np.float32), (4, np.uint8), (7, np.uint16)]
)
def test_commands__adapt_to_image_channels(channels, dtype, network, tmp_path, capsys):
    for split, level in [("train", 1), ("train", 2), ("train", 3), ("val", 1), ("val", 3)]:
        folder = tmp_path / "data" / split / f"class{level % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        np.save(folder / f"{level}.npy", array(channels, dtype, level))
    data = ["--data", str(tmp_path / "data"), "--out", str(tmp_path / "out")]
    knn_command.main([*network, *data, "--k", "1", "--layer", "last"])
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    mean, std = open_source(tmp_path / "data" / "train").statistics(
        open_source(tmp_path / "data" / "train").pixel_type
    )
    assert (results["mean"], results["std"], results["unreadable"]) == (mean, std, 0)
    printed = capsys.readouterr().out
    assert ("in_chans" in printed) == (channels != 3)
    assert f"input: {channels} channel" in printed
    train = ["--data", str(tmp_path / "data" / "train"), "--out", str(tmp_path / "out.npz")]
    embed_command.main([*network, *train])
    with np.load(tmp_path / "out.npz") as file:
        assert np.isfinite(file["features"]).all()
        assert len(file["features"]) == 3


def test_config__follows_training_or_images():
    deep = open_source([array(4, np.uint16, level) for level in range(3)])
    trunk = TimmTrunk("resnet10t", {"in_chans": 4})
    config = config_for(trunk, deep, rgb=False)
    assert list(config.mean) == deep.statistics(deep.pixel_type)[0]
    assert config.origins["mean"] == "images"
    trained = trunk.network_config.with_values("run", mean=[9] * 4, std=[8] * 4, dtype="uint16")
    trunk.network_config = trained
    assert config_for(trunk, deep, rgb=False) == trained
    photos = open_source([array(3, np.uint8, level) for level in range(3)])
    assert config_for(torch.nn.Identity(), photos, rgb=False) == NetworkConfig()
    trunk = pirl.WideResNet(10, 0.125)
    trunk.network_config = trunk.network_config.with_values("file", dtype="uint8")
    rgb_16 = open_source([array(3, np.uint16, level) for level in range(3)])
    with pytest.raises(ValueError, match=r"reads images with 3 channels of uint8.* Pass `rgb`"):
        config_for(trunk, rgb_16, rgb=False)


@pytest.mark.parametrize(
    ("channels", "dtype", "sentence"),
    [
        (1, np.uint16, "3 channels, but list has 1 channel of uint16. Pass `rgb` to convert"),
        (1, np.float32, "3 channels, but list has 1 channel of float32. Choose a network"),
        (4, np.uint8, "3 channels, but list has 4 channels of uint8. Pass `rgb`"),
        (7, np.uint8, "3 channels, but list has 7 channels of uint8. Choose a network for these"),
    ],
)
def test_other_images__are_converted_only_on_request(channels, dtype, sentence):
    images = [array(channels, dtype, level) for level in range(2)]
    trunk = pirl.WideResNet(10, width=0.125)
    with pytest.raises(ValueError, match=sentence):
        pirl.extract_features(trunk, images, size=32)
    if "Pass" in sentence:
        features, readable = pirl.extract_features(trunk, images, size=32, rgb=True)
        assert features.isfinite().all()
        assert readable.all()


def test_network__with_other_pixel_type_is_refused():
    trunk = pirl.WideResNet(10, width=0.125)
    trunk.network_config = trunk.network_config.with_values("run", dtype="uint16")
    with pytest.raises(ValueError, match="3 channels of uint16, but list has 3 channels of uint8"):
        pirl.extract_features(trunk, [array(3, np.uint8, 1)], size=32)
