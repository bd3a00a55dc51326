"""Which shards are kept, and which are found again."""

from types import SimpleNamespace

import pytest

from pirl_plugin.hooks.shard_checkpoint_hook import ShardCheckpointHook
from pirl_plugin.losses.pirl_loss import PIRLLoss


@pytest.fixture
def task(tmp_path):
    loss = PIRLLoss.from_config(
        {"num_train_samples": 9, "embedding_dim": 4, "bank": {"placement": "sharded"}}
    )
    return SimpleNamespace(
        loss=loss,
        train=True,
        checkpoint_folder=str(tmp_path),
        train_phase_idx=0,
        num_train_phases=9,
        iteration=0,
        config={"CHECKPOINT": {"CHECKPOINT_FREQUENCY": 1, "CHECKPOINT_ITER_FREQUENCY": -1}},
    )


def test_save__keeps_the_newest_two_and_none_of_an_abandoned_run(task, tmp_path):
    for step in (7000, 8000):  # a run that this one has taken over the folder from
        (tmp_path / "memory_bank" / f"step_{step}").mkdir(parents=True)
    for step in (10, 20, 30):
        task.loss.step = step
        ShardCheckpointHook().on_phase_end(task)
    kept = {path.name for path in (tmp_path / "memory_bank").iterdir()}
    assert kept == {"step_20", "step_30"}


def test_start__finds_the_shards_of_the_step_or_says_what_is_missing(task):
    task.loss.step = 10
    ShardCheckpointHook().on_phase_end(task)
    rows = task.loss.bank.rows.clone()
    task.loss.bank.rows.zero_()
    ShardCheckpointHook().on_start(task)
    assert (task.loss.bank.rows == rows).all()
    task.loss.bank.loaded = False
    task.loss.step = 11
    with pytest.raises(FileNotFoundError, match=r"is of step 11, and its memory bank is not in"):
        ShardCheckpointHook().on_start(task)
