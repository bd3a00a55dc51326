"""Which configurations lie beside a run's checkpoints."""

import os
from types import SimpleNamespace

import pytest
import yaml

from pirl_plugin.checkpoints.training_run import write_run_config
from pirl_plugin.hooks.vissl_earlier_config import EarlierConfigHook
from tests.helpers.configs import compose


def start(folder, *overrides, resumed=True):
    """What the hooks do with the files where a run starts; τ in each of them, by its name."""
    config = compose("config=pretrain/pirl/quick_jigsaw", *overrides)
    checkpoint = "model_phase0.torch" if resumed else None
    task = SimpleNamespace(config=config, checkpoint_path=checkpoint, checkpoint_folder=str(folder))
    EarlierConfigHook().on_start(task)
    write_run_config(config, folder)
    return {
        file.name: yaml.safe_load(file.read_text())["LOSS"]["pirl_loss"]["temperature"]
        for file in folder.glob("train_config*.yaml")
    }


def test_start__keeps_what_a_resumed_run_was_trained_with(tmp_path):
    start(tmp_path, resumed=False)
    may_differ = "config.DATA.NUM_DATALOADER_WORKERS=3"
    assert start(tmp_path, may_differ) == {"train_config.yaml": 0.2}
    start(tmp_path, "config.LOSS.pirl_loss.temperature=0.5")
    assert start(tmp_path, "config.LOSS.pirl_loss.temperature=0.3") == {
        "train_config_1.yaml": 0.2,
        "train_config_2.yaml": 0.5,
        "train_config.yaml": 0.3,
    }
    assert start(tmp_path, resumed=False) == {"train_config.yaml": 0.2}  # started over


@pytest.mark.parametrize("left", [0, 777, None])
def test_start__goes_on_where_the_file_is_damaged(left, tmp_path, caplog):
    """The host writes it in place: a kill, or a power cut, leaves a part of it."""
    start(tmp_path, resumed=False)
    file = tmp_path / "train_config.yaml"
    if left is None:
        file.write_bytes(bytes(100))
    else:
        os.truncate(file, left)
    assert start(tmp_path) == {"train_config.yaml": 0.2}
    assert f"{file} is damaged, and is written again: " in caplog.text


def test_start__leaves_files_of_other_names_alone(tmp_path):
    """A run that started over removed them."""
    for name in ("train_config_backup.yaml", "train_config_2.yaml"):
        (tmp_path / name).write_text("{}")
    write_run_config(compose("config=pretrain/pirl/quick_jigsaw"), tmp_path)
    other = compose("config=pretrain/pirl/quick_jigsaw", "config.LOSS.pirl_loss.temperature=0.3")
    task = SimpleNamespace(config=other, checkpoint_path="x", checkpoint_folder=str(tmp_path))
    EarlierConfigHook().on_start(task)
    left = {file.name for file in tmp_path.iterdir()}
    assert left == {"train_config_backup.yaml", "train_config_2.yaml", "train_config_3.yaml"}
    task.checkpoint_path = None
    EarlierConfigHook().on_start(task)
    assert [file.name for file in tmp_path.iterdir()] == ["train_config_backup.yaml"]
