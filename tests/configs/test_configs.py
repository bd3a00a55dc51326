"""Configs compose through VISSL's own Hydra entry: names, own images, quoted paths."""

from pathlib import Path

import pytest

from pirl_plugin.vissl.host_config import config_root, quoted
from tests.helpers.configs import cases, compose

ROOT = config_root() / "config"
NAMES = sorted(p.relative_to(ROOT).with_suffix("").as_posix() for p in ROOT.rglob("*.yaml"))


def test_names__do_not_clash_with_vissls():
    import configs

    host = Path(configs.__path__[0], "config")
    theirs = {p.relative_to(host).as_posix() for p in host.rglob("*.yaml")}
    assert theirs
    assert not theirs & {f"{name}.yaml" for name in NAMES}


def test_names__are_all_tested():
    bases = [name for name in NAMES if name.startswith("pirl/base/")]  # bases of complete configs
    tested = [*cases("pretrain"), *cases("benchmark")]
    assert sorted(bases + tested) == NAMES
    assert not list(config_root().rglob("__init__.py"))  # would shadow VISSL's own configs


@pytest.mark.parametrize("name", ["josé = b, (c) [d] #", "it's ~ {e}"])
def test_quoted_paths__compose_with_any_name(name):
    paths = [
        f"config.DATA.TRAIN.DATA_PATHS=[{quoted(name)}]",
        f"config.CHECKPOINT.DIR={quoted(name)}",
    ]
    config = compose("config=pretrain/pirl/quick_jigsaw", *paths)
    assert list(config.DATA.TRAIN.DATA_PATHS) == [config.CHECKPOINT.DIR] == [name]


def test_first_transform__can_be_overridden():
    override = "config.DATA.TRAIN.TRANSFORMS.0.size=96"
    config = compose("config=benchmark/pirl/linear_imagenet1k", override)
    assert config.DATA.TRAIN.TRANSFORMS[0]["size"] == 96


def test_benchmark__tests_on_same_kind_of_data():
    config = compose("config=benchmark/pirl/quick_linear", "+config/pirl/datasets=hf")
    assert list(config.DATA.TEST.DATA_SOURCES) == ["pirl_disk_hf"]


def test_own_images__fits_small_data_sets(image_folder):
    data = f"config.DATA.TRAIN.DATA_PATHS=[{image_folder / 'train'}]"
    cpu = ["+config/pirl/machines=cpu", "+config/pirl/models=resnet18"]
    for words, device, batch in (([], "gpu", 32), (cpu, "cpu", 32)):
        config = compose("config=pretrain/pirl/own_images", data, *words)
        assert config.LOSS.pirl_loss["num_negatives"] is None  # half of the images
        assert config.LOSS.pirl_loss["estimator"] == "info_nce"
        assert (config.MACHINE.DEVICE, config.DATA.TRAIN.BATCHSIZE_PER_REPLICA) == (device, batch)
        rate = config.OPTIMIZER.param_schedulers.lr
        assert rate.auto_lr_scaling.base_value == 0.03
