"""When shards are saved, and which are found again."""

from types import SimpleNamespace

import pytest

from pirl_plugin.vissl.adapters.loss import VISSLPIRLLoss as PIRLLoss
from pirl_plugin.vissl.hooks.shard_checkpoint import ShardCheckpointHook


@pytest.fixture
def task(tmp_path):
    loss = PIRLLoss(9, embedding_dim=4, bank={"placement": "sharded"})
    return SimpleNamespace(
        loss=loss,
        train=True,
        checkpoint_folder=str(tmp_path),
        train_phase_idx=0,
        num_train_phases=9,
        iteration=0,
        config={"CHECKPOINT": {"CHECKPOINT_FREQUENCY": 1, "CHECKPOINT_ITER_FREQUENCY": -1}},
    )


def test_save__is_of_each_step_that_the_host_saves(task, tmp_path):
    other = tmp_path / "memory_bank" / "step_7000"  # of a run that was here before
    other.mkdir(parents=True)
    task.config["CHECKPOINT"]["CHECKPOINT_FREQUENCY"] = 2
    for step, phase in ((10, 0), (20, 1), (30, 2), (90, 8)):
        task.loss.step, task.train_phase_idx = step, phase
        ShardCheckpointHook().on_phase_end(task)
    task.config["CHECKPOINT"]["CHECKPOINT_ITER_FREQUENCY"] = 2
    for task.loss.step in (91, 92):
        task.iteration = task.loss.step
        ShardCheckpointHook().on_step(task)
    kept = {path.name for path in (tmp_path / "memory_bank").iterdir()}
    assert kept == {"step_7000", "step_10", "step_30", "step_90", "step_92"}


def test_save__is_of_no_step_of_a_test(task, tmp_path):
    task.train, task.loss.step, task.iteration = False, 10, 10
    task.config["CHECKPOINT"]["CHECKPOINT_ITER_FREQUENCY"] = 1
    hook = ShardCheckpointHook()
    hook.on_step(task)
    hook.on_phase_end(task)
    task.train_phase_idx = task.num_train_phases - 1
    hook.on_phase_end(task)
    assert list(tmp_path.iterdir()) == []


def test_save__of_one_step_is_done_once(task, tmp_path):
    """By the clock and at the end of an epoch: replacing them could lose both at a kill."""
    hook = ShardCheckpointHook()
    task.loss.step = 10
    hook.save(task)
    before = (tmp_path / "memory_bank" / "step_10").stat().st_ino
    hook.on_phase_end(task)
    assert (tmp_path / "memory_bank" / "step_10").stat().st_ino == before
    task.loss.step = 11
    hook.save(task)
    assert (tmp_path / "memory_bank" / "step_11").is_dir()


def test_start__finds_the_shards_of_the_step_or_says_what_is_missing(task):
    task.loss.step = 10
    ShardCheckpointHook().on_phase_end(task)
    rows = task.loss.bank.rows.clone()
    task.loss.bank.rows.zero_()
    task.loss.load_state_dict(task.loss.state_dict())
    ShardCheckpointHook().on_start(task)
    assert (task.loss.bank.rows == rows).all()
    task.loss.step = 11
    task.loss.load_state_dict(task.loss.state_dict())
    with pytest.raises(FileNotFoundError, match=r"is of step 11, and its memory bank is not in"):
        ShardCheckpointHook().on_start(task)
