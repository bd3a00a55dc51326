"""Whether a command is the run of a checkpoint: one record, one comparison."""

import pytest
import torch
from vissl.utils.hydra_config import compose_hydra_configuration, convert_to_attrdict

from pirl_plugin.checkpoints.run_folder import SECTION
from pirl_plugin.checkpoints.training_run import (
    RUN_CONFIG,
    describe_other_images,
    describe_other_run,
    image_size_of,
    run_config,
    run_record,
    write_run_config,
)

QUICK = "config=pretrain/pirl/quick_jigsaw"


def compose(*overrides):
    composed = compose_hydra_configuration(list(overrides))
    return convert_to_attrdict(composed, dump_config=False)[1]


@pytest.fixture(scope="module")
def content():
    return {SECTION: run_record(compose(QUICK), {"train": "one"})}


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
def test_same_run__on_other_machines(override, content):
    assert describe_other_run(compose(QUICK, override), content, "FILE") is None


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
def test_other_run__is_named_by_its_keys(override, key, content):
    other = describe_other_run(compose(QUICK, override), content, "FILE")
    assert key in other
    assert "as in FILE; give the configuration of its run" in other


def test_initial_weights__are_compared_by_content(tmp_path):
    files = [tmp_path / name for name in ("a.pth", "b.pth", "c.pth")]
    for number, file in enumerate(files):
        torch.save({"a": torch.full((3,), float(number // 2))}, file)
    option = "config.MODEL.WEIGHTS_INIT.PARAMS_FILE="
    content = {SECTION: run_record(compose(QUICK, f"{option}{files[0]}"), {})}

    def other(file):
        return describe_other_run(compose(QUICK, f"{option}{file}"), content, "FILE")

    files[0].rename(tmp_path / "moved.pth")
    assert other(tmp_path / "moved.pth") is None
    assert other(tmp_path / "gone.pth") is None  # nothing reads it again
    assert "PARAMS_FILE" in other(files[2])
    assert "PARAMS_FILE" in describe_other_run(compose(QUICK), content, "FILE")


def test_images__are_compared_by_their_list(content):
    assert describe_other_images({"train": "one", "test": "new"}, content, "FILE") is None
    assert "DATA.TRAIN.DATA_PATHS" in describe_other_images({"train": "two"}, content, "FILE")
    assert describe_other_images({"train": "two"}, {}, "FILE") is None


def test_run_config__is_the_checkpoints_whatever_the_file_beside_it(content, tmp_path):
    torch.save({"classy_state_dict": {}, **content}, tmp_path / "model_phase0.torch")
    (tmp_path / RUN_CONFIG).write_bytes(b"\xff{")
    found = run_config(tmp_path / "model_phase0.torch")
    assert found["MODEL"]["TRUNK"]["PIRL_RESNET"]["DEPTH"] == 10
    assert image_size_of(found) == image_size_of(compose(QUICK))
    torch.save({}, tmp_path / "other.pth")
    with pytest.raises(ValueError, match=f"{RUN_CONFIG}: expected the configuration of a run"):
        run_config(tmp_path / "other.pth")
    write_run_config(compose(QUICK, "config.DATA.TRAIN.DATA_PATHS=[images]"), tmp_path)
    (path,) = run_config(tmp_path / "other.pth")["DATA"]["TRAIN"]["DATA_PATHS"]
    assert path.startswith("/")
