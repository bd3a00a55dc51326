"""Runs on images with other channels or more bits, up to the network's input."""

import itertools
import signal

import numpy as np
import pytest
import torch

from pirl_plugin.checkpoints.load import load_trunk
from pirl_plugin.checkpoints.write import save_trunk
from pirl_plugin.images.opening import open_source
from pirl_plugin.models.resnet import WideResNet
from pirl_plugin.system.failures import Refused
from pirl_plugin.vissl.adapters.dataset import open_datasets
from pirl_plugin.vissl.adapters.model_input import prepare_model
from pirl_plugin.vissl.adapters.run_images import identify_images, set_images
from pirl_plugin.vissl.hooks.monitor import read_labels
from pirl_plugin.vissl.host_config import quoted
from tests.helpers import faults
from tests.helpers.configs import compose
from tests.helpers.forks import train_in_forks
from tests.helpers.host_runs import run, settings

QUICK = "config=pretrain/pirl/quick_jigsaw"
LINEAR = "config=benchmark/pirl/quick_linear"


def save_arrays(root, channels, dtype):
    """Write two classes of eight training and two test images."""
    rng = np.random.default_rng(0)
    for split, count in (("train", 8), ("val", 2)):
        for label, number in itertools.product("ab", range(count)):
            folder = root / split / label
            folder.mkdir(parents=True, exist_ok=True)
            values = rng.integers(0, 250, (48, 60, channels)) * (1 if label == "a" else 0.7)
            np.save(folder / f"{number}.npy", values.astype(dtype))
    return root


def opened(data, *overrides, checkpoint=None):
    """Return a run's configuration, data sets and images as they are after its start."""
    paths = [f"config.DATA.{split.upper()}.DATA_PATHS=[{data / folder}]"
             for split, folder in (("train", "train"), ("test", "val"))]  # fmt: skip
    config = compose(*overrides, *paths)
    splits = ["TRAIN", "TEST"] if LINEAR in overrides else ["TRAIN"]
    datasets = open_datasets(config, splits)
    images = identify_images(config, datasets["train"].data_objs[0].source, checkpoint)
    images = set_images(config, images)
    for dataset in datasets.values():
        dataset.read_as(images)
    return config, datasets, images


@pytest.mark.parametrize(
    ("channels", "dtype"), [(1, np.uint16), (3, np.float32), (4, np.uint8), (30, np.float32)]
)
def test_pretraining__reads_image_channels(channels, dtype, tmp_path):
    data = save_arrays(tmp_path, channels, dtype)
    config, datasets, network = opened(data, QUICK)
    source = open_source(data / "train")
    mean, std, low, high = source.statistics()
    assert (network.mean, network.std, network.low, network.high) == (mean, std, low, high)
    assert network.statistics == "measured"
    assert network.dtype == np.dtype(dtype).name
    assert config.MODEL.TRUNK.PIRL_RESNET.get("IN_CHANNELS", 3) == channels
    views = datasets["train"][0]["data"]["images"]
    assert (views.shape[0], views.dtype) == (channels, source.pixel_type.dtype)
    model = torch.nn.Flatten()
    prepare_model(model, config, torch.device("cpu"), network.pixel_type.dtype)
    white = 255 if dtype == np.uint8 else 1
    expected = (views.double() / white - torch.tensor(mean)[:, None, None]) / (
        torch.tensor(std)[:, None, None]
    )
    torch.testing.assert_close(
        model(views[None])[0], expected.flatten().float(), rtol=1e-3, atol=1e-3
    )


def test_benchmark__reads_images_as_recorded_with_weights(tmp_path):
    data = save_arrays(tmp_path, 5, np.uint16)
    trunk = WideResNet(10, 0.5, in_channels=5)
    values = {"mean": [100.0] * 5, "std": [50.0] * 5, "dtype": "uint16"}
    trunk.network_config = trunk.network_config.with_values("run", size=32, **values)
    save_trunk(trunk, tmp_path / "trunk.torch")
    weights = f"config.MODEL.WEIGHTS_INIT.PARAMS_FILE={tmp_path / 'trunk.torch'}"
    _, datasets, _ = opened(data, LINEAR, weights)
    (test,) = datasets["test"][0]["data"]
    assert (test.shape, test.dtype) == ((5, 32, 32), torch.float32)
    assert -1.2 < float(test.mean()) < 1.2  # (uniform on 0 to 250, minus 100) / 50
    config, *_ = opened(data, LINEAR)  # without weights there is no record
    normalize = config.DATA.TEST.TRANSFORMS[-1]
    assert normalize["mean"] == list(open_source(data / "train").statistics().mean)


def test_resumed_run__uses_statistics_from_checkpoint(tmp_path):
    data = save_arrays(tmp_path, 2, np.float32)
    config, _, images = opened(data, QUICK)
    trunk = WideResNet(10, 0.5, in_channels=2)
    trunk.network_config = trunk.network_config.with_values_of(images)
    save_trunk(trunk, tmp_path / "checkpoint.torch")
    for path in (data / "train").rglob("*.npy"):
        np.save(path, np.load(path) + 7)
    resumed, *_ = opened(data, QUICK, checkpoint=str(tmp_path / "checkpoint.torch"))
    assert resumed.HOOKS.PIRL_INPUT == config.HOOKS.PIRL_INPUT
    assert opened(data, QUICK)[0].HOOKS.PIRL_INPUT != config.HOOKS.PIRL_INPUT


def test_given_values__and_rgb_are_kept(image_folder, tmp_path):
    config, *_ = opened(image_folder, QUICK)
    before = compose(QUICK, f"config.DATA.TRAIN.DATA_PATHS=[{image_folder / 'train'}]",
                     f"config.DATA.TEST.DATA_PATHS=[{image_folder / 'val'}]")  # fmt: skip
    before.DATA.TRAIN.LABEL_PATHS = [""]  # for VISSL, which otherwise looks in its catalog
    assert config == before
    data = save_arrays(tmp_path, 4, np.uint8)
    config, *_ = opened(data, QUICK, "config.DATA.MEAN=[0.1,0.2,0.3,0.4]")
    assert config.HOOKS.PIRL_INPUT.mean == [0.1, 0.2, 0.3, 0.4]
    assert len(config.HOOKS.PIRL_INPUT.std) == 4
    _, datasets, images = opened(data, QUICK, "+config.DATA.RGB=true")
    assert images.dtype == "uint8"
    assert datasets["train"][0]["data"]["images"].shape[0] == 3
    with pytest.raises(Refused, match=r"TRUNK\.NAME = resnet: this trunk reads 3 channels, but"):
        opened(data, "config=pretrain/pirl/jigsaw_8node")


BANDS = r"(?P<label>a|b)/(?P<group>\d{1})\d*'?_(?P<channel>[^_/]+)\.npy"


def split_bands(root):
    """Replace each array by one file per channel."""
    for path in sorted(root.rglob("*.npy")):
        for number, band in enumerate(np.moveaxis(np.load(path), -1, 0)):
            np.save(path.with_name(f"{path.stem}_B{number}.npy"), band)
        path.unlink()
    return root


def test_pattern__is_followed_by_both_splits(tmp_path):
    data = split_bands(save_arrays(tmp_path, 2, np.uint16))
    pattern = f"config.DATA.TRAIN.PATTERN={quoted(BANDS)}"
    _, datasets, _ = opened(data, LINEAR, pattern)
    for split, count in (("train", 16), ("test", 4)):
        source = datasets[split].disk.source
        assert (len(source), source.channel_names) == (count, ("B0", "B1"))
        assert datasets[split].label_objs[0].tolist() == [0] * (count // 2) + [1] * (count // 2)
    labels, groups = read_labels(datasets["train"], torch.tensor([0, 8, 1]))
    assert labels.tolist() == [0, 1, 0]
    assert groups[0] == groups[1] != groups[2]


@pytest.mark.slow
def test_run__with_bands_and_missing_pixels_resumes_after_kill(tmp_path):
    """Also with values that change before the run resumes, because the record has the mean."""
    data = save_arrays(tmp_path, 7, np.uint16)
    for number, path in enumerate(sorted(data.rglob("*.npy"))):
        array = np.load(path)
        array[number : number + 20, 8:30, number % 7] = 65_535
        np.save(path, array)
    split_bands(data)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    missing = ["config.DATA.TRAIN.NODATA=65535", f"config.DATA.TRAIN.PATTERN={quoted(BANDS)}"]
    printed = run(*settings(data, whole, epochs=2), *missing).stdout
    assert "7 channels of uint16, 24 px" in printed
    assert "nodata 65535 (run)" in printed
    assert "max 249 249 249" in printed
    fault = {"FAULT_IN_STEP": "2:SIGUSR1", "PYTHONPATH": faults.__path__[0]}
    stopped = run(*settings(data, killed, epochs=2), *missing, environment=fault, check=False)
    assert stopped.returncode == 128 + signal.SIGUSR1, stopped.stderr[-2000:]
    run(*settings(data, killed, epochs=2), *missing)
    trunks = [load_trunk(out / "checkpoint.torch") for out in (whole, killed)]
    assert trunks[0].network_config == trunks[1].network_config
    assert trunks[0].network_config.nodata == 65_535
    assert len(trunks[0].network_config.channel_names) == 7
    for one, other in zip(*(trunk.state_dict().values() for trunk in trunks), strict=True):
        assert torch.equal(one, other)


def test_run__builds_its_trunk_for_the_channels_of_its_images(tmp_path):
    out = tmp_path / "out"
    words = settings(save_arrays(tmp_path, 4, np.uint16), out, epochs=1)
    trained = train_in_forks(*words, ranks=1)
    assert trained.returncode == 0, trained.stdout[-2000:] + trained.stderr
    assert load_trunk(out / "checkpoint.torch").network_config.channels == 4


def test_run__starts_with_the_statistics_of_its_weights(tmp_path, capsys):
    data = save_arrays(tmp_path, 2, np.float32)
    trunk = WideResNet(10, 0.5, in_channels=2)
    values = {"mean": [90.0, 80.0], "std": [7.0, 6.0], "dtype": "float32", "nodata": 3}
    trunk.network_config = trunk.network_config.with_values("run", size=24, **values)
    save_trunk(trunk, tmp_path / "trunk.torch")
    weights = f"config.MODEL.WEIGHTS_INIT.PARAMS_FILE={tmp_path / 'trunk.torch'}"
    config, datasets, _ = opened(data, QUICK, weights)
    assert config.HOOKS.PIRL_INPUT.mean == [90, 80]
    assert datasets["train"].disk.reading.mean == (90, 80)
    assert datasets["train"].disk.reading.nodata == 3
    assert "trunk.torch sets mean and std" in capsys.readouterr().out
    other = save_arrays(tmp_path / "other", 2, np.uint16)
    assert opened(other, QUICK, weights)[0].HOOKS.PIRL_INPUT.mean != [90, 80]
    trunk.network_config = trunk.network_config.with_values("unknown", mean=[0, 0], std=[1, 1])
    save_trunk(trunk, tmp_path / "trunk.torch")
    assert opened(data, QUICK, weights)[0].HOOKS.PIRL_INPUT.mean != [90, 80]
    with pytest.raises(SystemExit, match=r"unknown mean and .* Set config\.DATA\.MEAN"):
        opened(data, LINEAR, weights)
