"""When a run saves, on all ranks after the same step; what it writes and keeps."""

import copy
import json
import os
import re
import signal
from types import SimpleNamespace

import pytest
import torch
from vissl.config import AttrDict
from vissl.utils.checkpoint import CheckpointWriter

from pirl_plugin.checkpoints.read import section_of
from pirl_plugin.method.sharded_bank import ShardedMemoryBank
from pirl_plugin.models.network_config import NetworkConfig
from pirl_plugin.system import watcher
from pirl_plugin.system.failures import Refused
from pirl_plugin.vissl.resume.exchange import SAVE, ExchangeHook
from pirl_plugin.vissl.resume.folder import find_newest
from pirl_plugin.vissl.resume.hook import CheckpointHook
from pirl_plugin.vissl.resume.record import Record
from pirl_plugin.vissl.sections import RECORD
from tests.helpers.processes import run_in_processes
from tests.helpers.tasks import FakeTask


class Loss:
    """A loss with the state that a checkpoint needs, optionally with a sharded bank."""

    def __init__(self, bank=None):
        self.bank = bank
        self.step = 0

    def state_dict(self):
        return {"_extra_state": {"step": self.step}}


class Run(FakeTask):
    """A run for the hook, with a state that VISSL can save."""

    more = frozenset({"hooks", "base_model"})

    def get_classy_state(self):
        (hook,) = self.hooks
        state = {"phase_idx": self.phase_idx, "train_phase_idx": self.train_phase_idx}
        return {**state, "hooks": {hook.name(): hook.get_classy_state()}}


CONFIG = {
    "CHECKPOINT": {
        "CHECKPOINT_ITER_FREQUENCY": -1,
        "CHECKPOINT_FREQUENCY": 2,
        "BACKEND": "disk",
    },
    "DATA": {
        "TRAIN": {"BATCHSIZE_PER_REPLICA": 4, "TRANSFORMS": []},
        "TEST": {"TRANSFORMS": []},
    },
    "DISTRIBUTED": {"NUM_NODES": 1, "NUM_PROC_PER_NODE": 1},
    "HOOKS": {},
    "LOSS": {"name": "pirl_loss"},
}


class Images:
    """Images in a split, identified only by their number, in batches of 4."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def identity(self):
        return {"count": self.count}

    def get_global_batchsize(self):
        return 4


def run_of(folder, minutes=0, keep_last=0, **more):
    """Return a task, its hook and its exchange."""
    config = AttrDict(copy.deepcopy(CONFIG))
    config.CHECKPOINT.PIRL = AttrDict({"EVERY_MINUTES": minutes, "KEEP_LAST": keep_last})
    config[RECORD] = Record(json.dumps(CONFIG), weights={}, origins={})
    exchange = ExchangeHook(1)
    hook = CheckpointHook(config, exchange)
    values = dict(
        hooks=[hook],
        datasets={"train": Images(20), "test": Images(20)},
        dataloaders={"train": range(5)},
        images=NetworkConfig(),
        loss=Loss(),
        optimizer=SimpleNamespace(on_epoch=lambda where: None),
        where=0.0,
        base_model=None,
        model=torch.nn.Identity(),
        checkpoint=None,
        checkpoint_path=None,
        checkpoint_folder=str(folder),
        device=torch.device("cpu"),
        train=True,
        phase_idx=0,
        train_phase_idx=0,
        num_train_phases=4,
        num_updates=0,
        iteration=0,
        local_iteration_num=0,
        config=config,
        amp_grad_scaler=None,
        meters=[],
    )
    return Run(**{**values, **more}), hook, exchange


def do_step(task, hook, exchange):
    task.iteration += 1
    task.local_iteration_num += 1
    task.num_updates += 4
    task.loss.step += 1
    exchange.exchange(task, {})
    hook.on_step(task)


def saved(folder):
    """Return the steps of mid-epoch checkpoints."""
    return sorted(int(re.sub(r"\D", "", path.name)) for path in folder.glob("model_iteration*"))


def run_steps(folder, minutes, sent=None, num_steps=8, every=-1, train=True):
    """Run the hook for some steps; return the saved ones and the exit status."""
    with watcher.watching():
        task, hook, exchange = run_of(folder, minutes, train=train)
        task.config.CHECKPOINT.CHECKPOINT_ITER_FREQUENCY = every
        hook.on_start(task)
        hook.on_phase_start(task)
        try:
            for step in range(1, num_steps + 1):
                for number in (sent or {}).get(step, ()):
                    os.kill(os.getpid(), number)
                do_step(task, hook, exchange)
        except SystemExit as stopped:
            return saved(folder), stopped.code
        finally:
            hook.on_end(task)
    return saved(folder), 0


@pytest.mark.parametrize(
    ("minutes", "every", "steps"),
    [(0, -1, []), (60, -1, []), (0, 4, [4, 8]), (1e-9, 4, [*range(1, 9)])],
)
def test_hook__saves_by_time_and_with_the_host(tmp_path, minutes, every, steps):
    assert run_steps(tmp_path, minutes, every=every) == (steps, 0)


def test_time__is_in_minutes(tmp_path):
    task, _, exchange = run_of(tmp_path, minutes=10)
    for earlier, agreed in ((590, 0), (15, SAVE)):
        exchange.saved_at -= earlier
        exchange.exchange(task, {})
        assert exchange.agreed == agreed
    task.train = False  # the test phase saves nothing
    exchange.exchange(task, {})
    assert exchange.agreed == 0


def test_signals__save_and_stop(tmp_path):
    assert run_steps(tmp_path, 0, {3: [signal.SIGTERM]}) == ([3], 143)
    (tmp_path / "model_iteration3.torch").unlink()
    assert run_steps(tmp_path, 0, {3: [signal.SIGTERM]}, train=False) == (
        [],
        143,
    )  # in a test phase


def _steps_of_two(rank, world_size, folder):
    return run_steps(folder, 0, {3: [signal.SIGTERM]} if rank else None)


def test_signal_to_one_rank__stops_both_after_same_step(tmp_path):
    first, second = run_in_processes(_steps_of_two, 2, tmp_path)
    assert first == second == ([3], 143)


def test_checkpoint__contains_record_position_and_scaler(tmp_path):
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    scaler.scale(torch.ones(()))
    task, hook, exchange = run_of(
        tmp_path, 1e-9, amp_grad_scaler=scaler, num_updates=40, train_phase_idx=2
    )
    task.config.LOSS.pirl_loss = {"name": "pirl_loss"}  # as VISSL does in a run
    hook.on_start(task)
    hook.on_phase_start(task)
    task.local_iteration_num = 5
    do_step(task, hook, exchange)
    content = torch.load(tmp_path / "model_iteration1.torch")
    section = section_of(content)
    assert section["samples_done"] == 4
    assert section["images"] == {split: {"count": 20} for split in ("TRAIN", "TEST")}
    assert json.loads(section["config"])["LOSS"] == {"name": "pirl_loss"}
    assert section["grad_scaler"]["scale"] == 8.0
    # VISSL adds 1 to both when the epoch resumes.
    assert content["train_phase_idx"] == 1
    assert content["iteration_num"] == 5
    assert task.local_iteration_num == 6

    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    scaler.scale(torch.ones(()))
    path = str(tmp_path / "model_iteration1.torch")
    task, hook, _ = run_of(
        tmp_path, checkpoint=content, checkpoint_path=path, amp_grad_scaler=scaler
    )
    hook.on_start(task)
    assert scaler.get_scale() == 8.0
    task.datasets = {"train": Images(21)}
    with pytest.raises(Refused, match="20 images, now 21"):
        hook.on_start(task)


def test_epochs__are_saved_with_shards_and_old_ones_removed(tmp_path):
    bank = ShardedMemoryBank(20, 4)
    task, hook, exchange = run_of(tmp_path, keep_last=2, loss=Loss(bank))
    (tmp_path / ".unfinished.model_phase9.torch").touch()  # from a run killed while saving
    hook.on_start(task)
    for task.train_phase_idx in range(4):
        hook.on_phase_start(task)
        do_step(task, hook, exchange)
        hook.on_phase_end(task)
    # CHECKPOINT_FREQUENCY = 2: epochs 0 and 2, and the last one.
    files = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.torch"))
    assert files == [
        "checkpoint.torch",
        "memory_bank/step_3/rank_0_of_1.torch",
        "memory_bank/step_4/rank_0_of_1.torch",
        "model_final_checkpoint_phase3.torch",
        "model_phase2.torch",
    ]
    newest = find_newest(tmp_path)
    assert newest.is_final
    assert newest.skipped == {}

    again = Loss(ShardedMemoryBank(20, 4, seed=1))
    again.step = 4
    again.bank.awaits_load = True  # as after VISSL has loaded the loss
    resumed = {"checkpoint": newest.content, "checkpoint_path": str(newest.path)}
    task, hook, _ = run_of(tmp_path, loss=again, **resumed)
    hook.on_start(task)
    assert torch.equal(again.bank.rows, bank.rows)
    assert not again.bank.awaits_load


def test_host__writes_complete_files(tmp_path, monkeypatch):
    writer = CheckpointWriter(str(tmp_path), False, "phase", 0, "disk")
    name = "model_phase0.torch"
    writer.save_consolidated_checkpoint({"a": torch.ones(2)})
    assert sorted(os.listdir(tmp_path)) == ["checkpoint.torch", name]
    assert os.readlink(tmp_path / "checkpoint.torch") == name
    before = (tmp_path / name).read_bytes()
    monkeypatch.setattr(torch, "save", lambda content, file: 1 / file.write(b""))
    with pytest.raises(ZeroDivisionError):
        writer.save_consolidated_checkpoint({})
    assert (tmp_path / name).read_bytes() == before
