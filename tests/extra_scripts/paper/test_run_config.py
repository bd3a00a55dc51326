"""A run's configuration, in checkpoints and beside them."""

import torch
from run_config import run_config

from pirl_plugin.checkpoints.read import RUN_CONFIG, SECTION
from pirl_plugin.vissl.resume.record import make_checkpoint_record, write_run_config
from pirl_plugin.vissl.sections import RECORD
from tests.helpers.configs import compose


def test_run_config__prefers_checkpoint_over_file(tmp_path):
    config = compose("config=pretrain/pirl/quick_jigsaw")
    content = {"classy_state_dict": {"hooks": {SECTION: make_checkpoint_record(config, {})}}}
    torch.save(content, tmp_path / "model_phase0.torch")
    (tmp_path / RUN_CONFIG).write_bytes(b"[1]")
    found = run_config(tmp_path / "model_phase0.torch")
    assert found["MODEL"]["TRUNK"]["PIRL_RESNET"]["DEPTH"] == 10
    torch.save({}, tmp_path / "checkpoint.torch")  # from VISSL without this plugin
    write_run_config(config[RECORD].config, tmp_path)
    del found["HOST_DEFAULTS"]  # not for people
    assert run_config(tmp_path / "checkpoint.torch") == found
    (tmp_path / "link.torch").symlink_to("model_phase1.torch")  # may have been removed
    assert run_config(tmp_path / "link.torch") == found
    torch.save({}, tmp_path / "resnet50.pth")  # weights put there by a user
    assert run_config(tmp_path / "resnet50.pth") is None
