"""The configuration beside a checkpoint: written, found, refused."""

import pytest
import torch
from vissl.config import AttrDict

from pirl_plugin.checkpoints.training_run import learning_rates, run_config, write_run_config
from tests.helpers.configs import compose


def test_run_config__is_what_was_written(tmp_path):
    config = {"MODEL": {"FSDP_CONFIG": {"compute_dtype": torch.float16}}, "SEED_VALUE": 3}
    write_run_config(AttrDict(config), tmp_path)
    assert run_config(tmp_path / "checkpoint.torch") == {
        "MODEL": {"FSDP_CONFIG": {"compute_dtype": "float16"}},
        "SEED_VALUE": 3,
    }


def test_run_config__has_absolute_paths(tmp_path, monkeypatch):
    """Commands that read them are given in other folders."""
    monkeypatch.chdir(tmp_path)
    train = {"DATA_PATHS": ["photos/train", "/else", "s3://bucket/a"], "LABEL_PATHS": []}
    model = {
        "WEIGHTS_INIT": {"PARAMS_FILE": "a.torch"},
        "TRUNK": {"PIRL_ENSEMBLE": {"PARAMS_FILES": ["", "/b.torch"]}},
    }
    config = AttrDict({"MODEL": model, "DATA": {"TRAIN": train, "MEAN": [0.1]}})
    write_run_config(config, tmp_path)
    written = run_config(tmp_path / "checkpoint.torch")
    assert written["MODEL"] == {
        "WEIGHTS_INIT": {"PARAMS_FILE": str(tmp_path / "a.torch")},
        "TRUNK": {"PIRL_ENSEMBLE": {"PARAMS_FILES": ["", "/b.torch"]}},
    }
    found = written["DATA"]["TRAIN"]
    expected = [str(tmp_path / "photos" / "train"), "/else", "s3://bucket/a"]
    assert found == {"DATA_PATHS": expected, "LABEL_PATHS": []}
    assert config.DATA.TRAIN.DATA_PATHS[0] == "photos/train"


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


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("pretrain/pirl/jigsaw_8node", "0.12 → 0.00012"),
        ("pretrain/pirl/jigsaw_baseline_8node", "0.12 → 0.00012"),
        ("benchmark/pirl/linear_imagenet1k", "0.01 → 0.001 → 0.0001"),  # step
        ("benchmark/pirl/semi_supervised_imagenet1k_1percent", "0.01 → 0.001 → 0.0001"),
        ("pretrain/simclr/simclr_8node_resnet", "0.6 → 4.8 → 0"),  # composite
    ],
)
def test_learning_rates__are_those_that_the_schedule_reads(name, expected):
    """Every schedule has ``start_value``, the host's default, which most do not read."""
    schedule = compose(f"config={name}").OPTIMIZER.param_schedulers.lr
    assert learning_rates(schedule) == expected
    assert learning_rates({**schedule, "name": "constant", "value": 0.3}) == "0.3"
