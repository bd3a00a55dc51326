"""Every config composes through the host's own Hydra entry, and says what the paper says."""

import os
from pathlib import Path

import pytest
from vissl.utils.hydra_config import compose_hydra_configuration, convert_to_attrdict

from pirl_plugin.host.search_path import config_root
from pirl_plugin.overrides import quoted

ROOT = config_root() / "config"
NAMES = sorted(p.relative_to(ROOT).with_suffix("").as_posix() for p in ROOT.rglob("*.yaml"))
COMPLETE = [name for name in NAMES if name.startswith(("pretrain/", "benchmark/"))]
BASES = [name for name in NAMES if name.startswith("pirl/base/")]  # what complete ones build on
OVERLAYS = [name for name in NAMES if name.startswith("pirl/") and name not in BASES]
COMPOSED_OVER = {
    "pirl/linear": "benchmark/pirl/linear_imagenet1k",
    "pirl/finetune": "benchmark/pirl/semi_supervised_imagenet1k_1percent",
}


def compose(*overrides):
    _, config = convert_to_attrdict(compose_hydra_configuration(list(overrides)), dump_config=False)
    return config


@pytest.mark.parametrize("name", COMPLETE)
def test_config__composes_from_any_folder(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert compose(f"config={name}").LOSS.name


@pytest.mark.parametrize("name", OVERLAYS)
def test_overlay__composes_over_the_papers_config(name):
    group, _, option = name.rpartition("/")
    over = COMPOSED_OVER.get(group, "pretrain/pirl/jigsaw_8node")
    assert compose(f"config={over}", f"+config/{group}={option}").LOSS.name


def test_names__are_none_of_vissls():
    import configs

    host = Path(configs.__path__[0], "config")
    theirs = {p.relative_to(host).as_posix() for p in host.rglob("*.yaml")}
    assert theirs
    assert not theirs & {f"{name}.yaml" for name in NAMES}


def test_names__are_all_tested():
    assert sorted(COMPLETE + OVERLAYS + BASES) == NAMES
    assert not list(config_root().rglob("__init__.py"))  # would shadow the host's own configs


def test_quick_jigsaw__is_one_process_on_a_cpu():
    config = compose("config=pretrain/pirl/quick_jigsaw")
    assert config.MACHINE.DEVICE == "cpu"
    assert config.DISTRIBUTED.NUM_NODES * config.DISTRIBUTED.NUM_PROC_PER_NODE == 1
    assert config.DATA.TRAIN.TRANSFORMS[0]["image_size"] == 64
    assert config.MODEL.TRUNK.NAME == "pirl_resnet"


def test_unknown_config__is_named_in_one_sentence():
    with pytest.raises(SystemExit) as stopped:
        compose("config=pretrain/pirl/jigsaw_9node")
    message = str(stopped.value)
    assert "pretrain/pirl/jigsaw_9node" in message
    assert "pretrain/pirl/jigsaw_8node" in message
    assert "/base/" not in message
    assert len(message.splitlines()) == 1
    assert os.linesep not in message


@pytest.mark.parametrize("name", ["plain/a-b_c.d", "josé", "a = b, (c) [d] #", "it's ~ {e}", "a b"])
def test_quoted__paths_of_any_name_compose(name):
    paths = [
        f"config.DATA.TRAIN.DATA_PATHS=[{quoted(name)}]",
        f"config.CHECKPOINT.DIR={quoted(name)}",
    ]
    config = compose("config=pretrain/pirl/quick_jigsaw", *paths)
    assert list(config.DATA.TRAIN.DATA_PATHS) == [config.CHECKPOINT.DIR] == [name]


def test_unquoted_value__is_told_to_be_quoted():
    with pytest.raises(SystemExit, match=r"needs quotes: KEY=\"'…'\""):
        compose("config=pretrain/pirl/quick_jigsaw", "config.CHECKPOINT.DIR=josé")
