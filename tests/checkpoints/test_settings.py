"""A checkpoint of another run is refused in one sentence."""

import copy

import pytest

from pirl_plugin.checkpoints.host_checkpoint import PLUGIN_SECTION
from pirl_plugin.checkpoints.settings import describe_other_run, resume_settings

CONFIG = {
    "MODEL": {
        "TRUNK": {"NAME": "pirl_resnet", "RESNETS": {"DEPTH": 50}},
        "HEAD": {"PARAMS": [["pirl_head", {"in_dim": 2048, "num_patches": 9}]]},
    },
    "LOSS": {"name": "pirl_loss"},
    "OPTIMIZER": {"name": "sgd", "num_epochs": 8},
    "DATA": {"TRAIN": {"TRANSFORMS": [{"name": "PIRLJigsaw", "patch_size": 8}]}},
}
CONTENT = {"train_phase_idx": 2, PLUGIN_SECTION: {"settings": resume_settings(CONFIG)}}


def difference(change, content=CONTENT):
    config = copy.deepcopy(CONFIG)
    change(config)
    return describe_other_run(config, content, "OUT/model_phase2.torch")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            lambda c: c["MODEL"]["TRUNK"]["RESNETS"].update(DEPTH=18),
            "config.MODEL.TRUNK.RESNETS.DEPTH = 18: expected 50, as in OUT/model_phase2.torch;",
        ),
        (
            lambda c: c["DATA"]["TRAIN"]["TRANSFORMS"][0].update(name="PIRLRotation"),
            'config.DATA.TRAIN.TRANSFORMS = ["PIRLRotation"]: expected ["PIRLJigsaw"], as in',
        ),
        (
            lambda c: c["LOSS"].update(name="cross_entropy"),
            'config.LOSS.name = "cross_entropy": expected "pirl_loss", as in',
        ),
        (
            lambda c: c["OPTIMIZER"].update(num_epochs=2),
            "config.OPTIMIZER.num_epochs = 2: expected more than the 3 epochs that OUT/model_phase2"
            ".torch has done;",
        ),
    ],
)
def test_difference__is_named(change, sentence):
    found = difference(change)
    assert found.startswith(sentence)
    assert "another config.CHECKPOINT.DIR" in found


@pytest.mark.parametrize(
    "change",
    [
        lambda c: None,
        lambda c: c["OPTIMIZER"].update(num_epochs=16),
        lambda c: c["DATA"]["TRAIN"]["TRANSFORMS"][0].update(patch_size=16),
        lambda c: c["MODEL"]["TRUNK"].update(NEW_KEY_OF_ANOTHER_HOST=1),
    ],
)
def test_difference__that_may_be_is_none(change):
    assert difference(change) is None


def test_older_checkpoints__are_compared_by_epochs_alone():
    old = {"train_phase_idx": 2}
    assert difference(lambda c: c["LOSS"].update(name="other"), old) is None
    assert "num_epochs = 3: expected more than" in difference(
        lambda c: c["OPTIMIZER"].update(num_epochs=3), old
    )
