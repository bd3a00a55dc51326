"""Which configurations lie beside a run's checkpoints."""

import os
from types import SimpleNamespace

import pytest
import yaml

from pirl_plugin.checkpoints.training_run import write_run_config
from pirl_plugin.vissl.hooks.run_config import RunConfigHook, keep_earlier_config
from tests.helpers.configs import compose


def run(folder, *overrides, resumed=True, steps=1):
    """What the hook does with the files in some steps; τ in each of them, by its name."""
    config = compose("config=pretrain/pirl/quick_jigsaw", *overrides)
    checkpoint = "model_phase0.torch" if resumed else None
    task = SimpleNamespace(
        config=config, checkpoint_path=checkpoint, checkpoint_folder=str(folder), train=True
    )
    hook = RunConfigHook()
    hook.on_start(task)
    for _ in range(steps):
        hook.on_step(task)
    return {
        file.name: yaml.safe_load(file.read_text())["LOSS"]["pirl_loss"]["temperature"]
        for file in folder.glob("train_config*.yaml")
    }


def test_start__keeps_what_a_resumed_run_was_trained_with(tmp_path):
    run(tmp_path, resumed=False)
    may_differ = "config.DATA.NUM_DATALOADER_WORKERS=3"
    assert run(tmp_path, may_differ) == {"train_config.yaml": 0.2}
    run(tmp_path, "config.LOSS.pirl_loss.temperature=0.5")
    assert run(tmp_path, "config.LOSS.pirl_loss.temperature=0.3") == {
        "train_config_1.yaml": 0.2,
        "train_config_2.yaml": 0.5,
        "train_config.yaml": 0.3,
    }
    assert run(tmp_path, resumed=False) == {"train_config.yaml": 0.2}  # started over


def test_start__that_comes_to_no_step_changes_nothing(tmp_path):
    """The settings of a resumed run that ended at once counted as those it was trained with."""
    run(tmp_path, resumed=False)
    other = "config.LOSS.pirl_loss.temperature=0.3"
    assert run(tmp_path, other, steps=0) == {"train_config.yaml": 0.2}
    assert run(tmp_path, steps=3) == {"train_config.yaml": 0.2}


@pytest.mark.parametrize("left", [0, 777, None])
def test_start__goes_on_where_the_file_is_damaged(left, tmp_path, caplog):
    """The host writes it in place: a kill, or a power cut, leaves a part of it."""
    run(tmp_path, resumed=False)
    file = tmp_path / "train_config.yaml"
    if left is None:
        file.write_bytes(bytes(100))
    else:
        os.truncate(file, left)
    assert run(tmp_path) == {"train_config.yaml": 0.2}
    assert f"{file} is damaged, and is written again: " in caplog.text


def test_start__leaves_files_of_other_names_alone(tmp_path):
    """A run that started over removed them."""
    for name in ("train_config_backup.yaml", "train_config_2.yaml"):
        (tmp_path / name).write_text("{}")
    write_run_config(compose("config=pretrain/pirl/quick_jigsaw"), tmp_path)
    other = compose("config=pretrain/pirl/quick_jigsaw", "config.LOSS.pirl_loss.temperature=0.3")
    keep_earlier_config(tmp_path, other.to_dict(), resumed=True)
    left = {file.name for file in tmp_path.iterdir()}
    assert left == {"train_config_backup.yaml", "train_config_2.yaml", "train_config_3.yaml"}
    keep_earlier_config(tmp_path, other.to_dict(), resumed=False)
    assert [file.name for file in tmp_path.iterdir()] == ["train_config_backup.yaml"]
