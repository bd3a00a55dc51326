"""Networks for images with other channels or more bits: what they accept and refuse."""

import json

import numpy as np
import pytest
import timm
import torch

import pirl_plugin as pirl
from pirl_plugin.evaluation import embed_command, knn_command
from pirl_plugin.evaluation.crops import config_for
from pirl_plugin.images.columns import Columns
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
    mean, std, low, high = open_source(tmp_path / "data" / "train").statistics()
    assert (results["mean"], results["std"], results["unreadable"]) == ([*mean], [*std], 0)
    printed = capsys.readouterr().out
    assert ("in_chans" in printed) == (channels != 3)
    assert f"input: {channels} channel" in printed
    for name, values in (("min", low), ("max", high)):
        assert f"{name} {' '.join(map('{:.5g}'.format, values))} (images)" in printed
    train = ["--data", str(tmp_path / "data" / "train"), "--out", str(tmp_path / "out.npz")]
    embed_command.main([*network, *train])
    with np.load(tmp_path / "out.npz") as file:
        assert np.isfinite(file["features"]).all()
        assert len(file["features"]) == 3


def test_config__follows_training_or_images():
    deep = open_source([array(4, np.uint16, level) for level in range(3)])
    trunk = TimmTrunk("resnet10t", {"in_chans": 4})
    config = config_for(trunk, deep)
    assert config.mean == deep.statistics()[0]
    assert config.origins["mean"] == "images"
    trained = trunk.network_config.with_values("run", mean=[9] * 4, std=[8] * 4, dtype="uint16")
    trunk.network_config = trained
    assert config_for(trunk, deep) == trained
    photos = open_source([array(3, np.uint8, level) for level in range(3)])
    assert config_for(torch.nn.Identity(), photos) == NetworkConfig()
    trunk = pirl.WideResNet(10, 0.125)
    trunk.network_config = trunk.network_config.with_values("file", dtype="uint8")
    rgb_16 = open_source([array(3, np.uint16, level) for level in range(3)])
    with pytest.raises(ValueError, match=r"reads images with 3 channels of uint8.* Pass `rgb`"):
        config_for(trunk, rgb_16)


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


def test_network__reads_only_the_channels_that_it_was_trained_on(tmp_path):
    for level, band in enumerate(("B02", "B03", "B08")):
        for scene in "ab":
            np.save(tmp_path / f"{scene}_{band}.npy", np.full((40, 50), level, np.uint16))
    trunk = pirl.WideResNet(10, width=0.125, in_channels=2)

    def images(bands):
        return open_source(tmp_path, columns=Columns(pattern=f".*_(?P<channel>{bands}).npy"))

    pirl.PIRL(trunk, pirl.ImageDataset(images("B0[23]"), pirl.ImageViews(image_size=32)))
    pirl.save_trunk(trunk, tmp_path / "trunk.torch")
    trunk = pirl.load_trunk(tmp_path / "trunk.torch")
    with pytest.raises(ValueError, match=r"reads the channels B02 B03, but .* has B02 B08"):
        pirl.extract_features(trunk, images("B0[28]"), size=32)
    for same in (images("B0[23]"), [array(2, np.uint16, 1)]):
        assert pirl.extract_features(trunk, same, size=32)[1].all()
    pirl.PIRL(trunk, pirl.ImageDataset(images("B0[28]"), pirl.ImageViews(image_size=32)))
    record = trunk.network_config
    assert (record.channel_names, record.mean) == (("B02", "B08"), (0, 2))


def test_image_with_infinite_features__counts_as_unreadable(tmp_path, caplog):
    images = [array(2, np.float32, level) for level in range(3)]
    images[1] = np.full_like(images[1], -3.4e38)
    for number, image in enumerate(images):
        np.save(tmp_path / f"{number}.npy", image)
    torch.manual_seed(0)
    trunk = pirl.WideResNet(10, width=0.125, in_channels=2)
    values = {"mean": [100] * 2, "std": [1e-3] * 2}
    for batch in (1, 2):
        features, readable = pirl.extract_features(trunk, tmp_path, size=32, batch=batch, **values)
        assert readable.tolist() == [True, False, True]
        assert features.isfinite().all(1).tolist() == readable.tolist()
    assert len(caplog.messages) == 2
    for message in caplog.messages:
        assert "image 1, " in message
        assert "not finite; its values range from -3.4e+38 to -3.4e+38" in message


def test_unknown_statistics__are_asked_for(tmp_path, capsys):
    images = [array(2, np.uint16, level) for level in range(3)]

    def own_views(image):
        return image.float()[:, :32, :32] / 100

    trunk = pirl.WideResNet(10, width=0.125, in_channels=2)
    data = pirl.ImageDataset(images, own_views)
    pirl.PIRL(trunk, data)
    pirl.save_trunk(trunk, tmp_path / "trunk.torch")
    loaded = pirl.load_trunk(tmp_path / "trunk.torch")
    assert "mean unknown" in str(loaded.network_config)
    for network in (trunk, loaded):
        with pytest.raises(ValueError, match=r"unknown mean and .* Pass the `mean` and `std`"):
            pirl.extract_features(network, images)
    expected, _ = pirl.extract_features(loaded, images, mean=[0, 0], std=[100, 100])
    for number, image in enumerate(images):
        np.save(tmp_path / f"{number}.npy", image)
    options = ["--checkpoint", str(tmp_path / "trunk.torch"), "--data", str(tmp_path)]
    out = ["--out", str(tmp_path / "out.npz")]
    with pytest.raises(ValueError, match="Pass the `mean` and `std`"):
        embed_command.main([*options, *out])
    embed_command.main([*options, *out, "--mean", "0", "0", "--std", "100", "100"])
    np.testing.assert_allclose(np.load(out[1])["features"], expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="Pass both `mean` and `std`, or neither"):
        pirl.PIRL(trunk, data, mean=[0, 0])
    pirl.PIRL(trunk, data, mean=[0, 0], std=[100, 100])
    features, _ = pirl.extract_features(trunk, images)
    torch.testing.assert_close(features, expected)
