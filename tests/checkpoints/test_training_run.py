"""Whether a command is the run of a checkpoint: one record, one comparison."""

import pytest
import torch
from vissl.utils.hydra_config import compose_hydra_configuration, convert_to_attrdict

from pirl_plugin.checkpoints.training_run import (
    RUN_CONFIG,
    SECTION,
    describe_difference,
    image_size_of,
    run_config,
    run_record,
    run_settings,
    write_run_config,
)

QUICK = "config=pretrain/pirl/quick_jigsaw"


def compose(*overrides):
    composed = compose_hydra_configuration(list(overrides))
    return convert_to_attrdict(composed, dump_config=False)[1]


def other(before, *overrides):
    return describe_difference(before, run_settings(compose(QUICK, *overrides)), "FILE")


@pytest.fixture(scope="module")
def before():
    return run_settings(compose(QUICK))


@pytest.mark.parametrize(
    "override",
    [
        "config.DISTRIBUTED.NUM_PROC_PER_NODE=2",
        "config.DATA.TRAIN.BATCHSIZE_PER_REPLICA=8",
        "config.DATA.TRAIN.DATA_PATHS=[elsewhere]",
        "config.LOSS.pirl_loss.bank.placement=sharded",
        "config.CHECKPOINT.DIR=elsewhere",
        "config.DATA.NUM_DATALOADER_WORKERS=3",
    ],
)
def test_same_run__on_other_machines(override, before):
    assert other(before, override) is None


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("config.LOSS.pirl_loss.temperature=0.5", "LOSS.pirl_loss.temperature = 0.5: expected 0.2"),
        ("config.MODEL.TRUNK.PIRL_RESNET.DEPTH=18", "PIRL_RESNET.DEPTH = 18: expected 10"),
        ("config.OPTIMIZER.num_epochs=7", "OPTIMIZER.num_epochs = 7: expected"),
        ("config.OPTIMIZER.weight_decay=0.5", "OPTIMIZER.weight_decay = 0.5: expected"),
        ("config.SEED_VALUE=77", "SEED_VALUE = 77: expected 0"),
    ],
)
def test_other_run__is_named_by_its_keys(override, key, before):
    assert key in other(before, override)
    assert "as in FILE; give the configuration" in other(before, override)


def test_initial_weights__are_compared_by_content(tmp_path):
    files = [tmp_path / name for name in ("a.pth", "b.pth", "c.pth")]
    for number, file in enumerate(files):
        torch.save({"a": torch.full((3,), float(number // 2))}, file)
    option = "config.MODEL.WEIGHTS_INIT.PARAMS_FILE="
    before = run_settings(compose(QUICK, f"{option}{files[0]}"))
    files[0].rename(tmp_path / "moved.pth")
    assert other(before, f"{option}{tmp_path / 'moved.pth'}") is None
    assert "PARAMS_FILE" in other(before, f"{option}{files[2]}")
    assert "PARAMS_FILE" in other(before)


def test_images__are_compared_by_their_list():
    key = "DATA.TRAIN.DATA_PATHS"
    assert describe_difference({}, {key: "two"}, "FILE") is None  # there is no record
    assert describe_difference({key: "one"}, {key: "one"}, "FILE") is None
    said = describe_difference({key: "one"}, {key: "two"}, "FILE")
    assert said.startswith(f"config.{key} = two: expected one, as in FILE; give ")


def test_run_config__is_the_checkpoints_whatever_the_file_beside_it(tmp_path):
    content = {"classy_state_dict": {}, SECTION: run_record(compose(QUICK))}
    torch.save(content, tmp_path / "model_phase0.torch")
    (tmp_path / RUN_CONFIG).write_bytes(b"[1]")
    found = run_config(tmp_path / "model_phase0.torch")
    assert found["MODEL"]["TRUNK"]["PIRL_RESNET"]["DEPTH"] == 10
    assert image_size_of(found) == image_size_of(compose(QUICK))
    torch.save({}, tmp_path / "other.pth")
    with pytest.raises(ValueError, match=f"{RUN_CONFIG}: expected the configuration of a run"):
        run_config(tmp_path / "other.pth")
    write_run_config(compose(QUICK), tmp_path)
    assert run_config(tmp_path / "other.pth") == found
