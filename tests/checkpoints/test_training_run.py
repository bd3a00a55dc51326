"""The configuration beside a checkpoint: written, found, refused."""

import pytest
import torch
from vissl.config import AttrDict

from pirl_plugin.checkpoints.training_run import run_config, write_run_config


def test_run_config__is_what_was_written(tmp_path):
    config = {"MODEL": {"FSDP_CONFIG": {"compute_dtype": torch.float16}}, "SEED_VALUE": 3}
    write_run_config(AttrDict(config), tmp_path)
    assert run_config(tmp_path / "checkpoint.torch") == {
        "MODEL": {"FSDP_CONFIG": {"compute_dtype": "float16"}},
        "SEED_VALUE": 3,
    }


def test_run_config__is_found_where_a_link_leads(tmp_path):
    assert run_config(tmp_path / "checkpoint.torch") is None
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "model.torch").touch()
    (tmp_path / "run" / "train_config.yaml").write_text("SEED_VALUE: 1")
    (tmp_path / "link.torch").symlink_to(tmp_path / "run" / "model.torch")
    assert run_config(tmp_path / "link.torch") == {"SEED_VALUE": 1}


@pytest.mark.parametrize("text", ["a: [", "- 1", ""])
def test_run_config__refuses_what_is_none(text, tmp_path):
    (tmp_path / "train_config.yaml").write_text(text)
    with pytest.raises(ValueError, match=r"train_config\.yaml is no configuration of a VISSL run"):
        run_config(tmp_path / "checkpoint.torch")
