"""Which configuration lies beside a run's checkpoints."""

import pytest
import yaml

from pirl_plugin.hooks.vissl_run_config import write_run_config
from tests.helpers.configs import compose

OURS = "config=pretrain/pirl/quick_jigsaw"


@pytest.fixture
def config(tmp_path):
    def made(*overrides):
        return compose(OURS, f"config.CHECKPOINT.DIR={tmp_path}", *overrides)

    return made


def temperatures(folder):
    """τ in each file, by its name."""
    return {
        file.name: yaml.safe_load(file.read_text())["LOSS"]["pirl_loss"]["temperature"]
        for file in folder.glob("train_config*.yaml")
    }


def test_write__is_what_the_host_would_write(config, tmp_path):
    from vissl.utils.hydra_config import save_attrdict_to_disk

    made = config()
    made.MODEL.FSDP_CONFIG.compute_dtype = "float32"  # before the host converts it
    save_attrdict_to_disk(made)
    theirs = yaml.safe_load((tmp_path / "train_config.yaml").read_text())
    write_run_config(config(), resumed=False)
    assert yaml.safe_load((tmp_path / "train_config.yaml").read_text()) == theirs


def test_write__keeps_what_a_resumed_run_was_trained_with(config, tmp_path):
    write_run_config(config(), resumed=False)
    write_run_config(config("config.DATA.NUM_DATALOADER_WORKERS=3"), resumed=True)  # may differ
    assert temperatures(tmp_path) == {"train_config.yaml": 0.1}
    write_run_config(config("config.LOSS.pirl_loss.temperature=0.5"), resumed=True)
    write_run_config(config("config.LOSS.pirl_loss.temperature=0.2"), resumed=True)
    assert temperatures(tmp_path) == {
        "train_config_1.yaml": 0.1,
        "train_config_2.yaml": 0.5,
        "train_config.yaml": 0.2,
    }
    write_run_config(config(), resumed=False)  # begun anew
    assert temperatures(tmp_path) == {"train_config.yaml": 0.1}
