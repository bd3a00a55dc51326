"""Every config composes through the host's own Hydra entry, and says what the paper says."""

import os
from pathlib import Path

import pytest
from vissl.utils.hydra_config import compose_hydra_configuration, convert_to_attrdict

from pirl_plugin.host.search_path import config_root

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


def test_jigsaw_8node__is_the_papers():
    config = compose("config=pretrain/pirl/jigsaw_8node")
    machines = config.DISTRIBUTED
    ranks = machines.NUM_NODES * machines.NUM_PROC_PER_NODE
    assert (machines.NUM_NODES, machines.NUM_PROC_PER_NODE) == (8, 4)
    assert ranks * config.DATA.TRAIN.BATCHSIZE_PER_REPLICA == 1024
    schedule = config.OPTIMIZER.param_schedulers.lr
    assert schedule.name == "cosine"
    assert schedule.start_value == pytest.approx(0.12)
    assert schedule.end_value == pytest.approx(0.00012)
    optimizer = config.OPTIMIZER
    assert (optimizer.name, optimizer.momentum, optimizer.weight_decay) == ("sgd", 0.9, 1e-4)
    assert optimizer.num_epochs == 800
    loss = config.LOSS.pirl_loss
    assert (loss.num_negatives, loss.temperature, loss.lambda_invariance) == (32000, 0.07, 0.5)
    assert (loss.estimator, loss.embedding_dim, loss.bank.momentum) == ("nce", 128, 0.5)
    (jigsaw,) = config.DATA.TRAIN.TRANSFORMS
    assert jigsaw["image_size"] == 224
    assert (jigsaw["patches_crop_size"], jigsaw["grid"], jigsaw["patch_size"]) == (255, 3, 64)
    assert (jigsaw["patches_scale"], jigsaw["num_permutations"]) == ([0.6, 1.0], None)
    assert (config.MODEL.TRUNK.NAME, config.MODEL.TRUNK.RESNETS.DEPTH) == ("resnet", 50)


@pytest.mark.parametrize(
    ("machine", "batch", "rate"),
    [("8node", 1024, 0.12), ("1node_8gpu", 256, 0.03), ("1gpu", 128, 0.015), ("cpu", 32, 0.00375)],
)
def test_machines__let_the_learning_rate_follow_the_batch(machine, batch, rate):
    config = compose("config=pretrain/pirl/jigsaw_8node", f"+config/pirl/machines={machine}")
    ranks = config.DISTRIBUTED.NUM_NODES * config.DISTRIBUTED.NUM_PROC_PER_NODE
    assert ranks * config.DATA.TRAIN.BATCHSIZE_PER_REPLICA == batch
    schedule = config.OPTIMIZER.param_schedulers.lr
    assert schedule.start_value == pytest.approx(rate)
    assert schedule.end_value == pytest.approx(rate / 1000)


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
