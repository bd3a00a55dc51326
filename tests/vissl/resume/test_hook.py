"""When a run saves by itself, on all ranks after the same step; and what it writes."""

import os
import signal
from types import SimpleNamespace

import pytest
import torch
from vissl.config import AttrDict
from vissl.hooks.log_hooks import LogLossMetricsCheckpointHook
from vissl.utils.checkpoint import CheckpointWriter

from pirl_plugin.checkpoints.training_run import SECTION
from pirl_plugin.vissl.hooks.faults import ExchangeHook
from pirl_plugin.vissl.resume import signals
from pirl_plugin.vissl.resume.folder import Keep
from pirl_plugin.vissl.resume.hook import HOOKS, CheckpointHook, samples_done
from tests.helpers.processes import run_in_processes


class HostHook(LogLossMetricsCheckpointHook):
    """Remembers the steps that it is asked to save."""

    def __init__(self):
        super().__init__(world_size=1)
        self.saved = []

    def _checkpoint_model(self, task, mode_frequency, mode_num, mode="phase"):
        assert (mode_frequency, mode) == (1, "iteration")
        self.saved.append(mode_num)


def a_task(folder, **more):
    task = SimpleNamespace(
        hooks=[],
        datasets={},
        loss=None,
        checkpoint=None,
        checkpoint_path=None,
        checkpoint_folder=str(folder),
        device=torch.device("cpu"),
        train=True,
        train_phase_idx=0,
        num_updates=0,
        config=AttrDict({"CHECKPOINT": {"CHECKPOINT_ITER_FREQUENCY": -1}}),
        amp_grad_scaler=None,
    )
    return SimpleNamespace(**{**vars(task), **more})


def steps(folder, minutes, sent=None, num_steps=8, every=-1, train=True):
    """Run the hook's steps; returns those that were saved, and the exit status."""
    host, hook, exchange = HostHook(), CheckpointHook(Keep(EVERY_MINUTES=minutes)), ExchangeHook(1)
    task = a_task(folder, hooks=[exchange, hook, host], train=train)
    task.config.CHECKPOINT.CHECKPOINT_ITER_FREQUENCY = every
    with signals.listening():
        hook.on_start(task)
        hook.on_phase_start(task)
        try:
            for task.iteration in range(1, num_steps + 1):
                for number in (sent or {}).get(task.iteration, ()):
                    os.kill(os.getpid(), number)
                exchange.exchange(task, {})
                hook.on_step(task)
        except SystemExit as stopped:
            return host.saved, stopped.code
        finally:
            hook.on_end(task)
    return host.saved, 0


@pytest.mark.parametrize(
    ("minutes", "every", "saved"),
    [(0, -1, []), (60, -1, []), (1e-9, -1, [*range(1, 9)]), (1e-9, 4, [1, 2, 3, 5, 6, 7])],
)
def test_hook__saves_by_time_where_the_host_does_not(tmp_path, minutes, every, saved):
    assert steps(tmp_path, minutes, every=every) == (saved, 0)


def test_signals__save_and_stop(tmp_path):
    assert steps(tmp_path, 0, {3: [signal.SIGTERM]}) == ([3], 143)
    assert steps(tmp_path, 0, {3: [signal.SIGTERM]}, train=False) == ([], 143)  # in a test


def _steps_of_two(rank, world_size, folder):
    return steps(folder, 0, {3: [signal.SIGTERM]} if rank else None)


def test_signal_to_one_rank__stops_both_after_the_same_step(tmp_path):
    first, second = run_in_processes(_steps_of_two, 2, tmp_path)
    assert first == second == ([3], 143)


def test_section__is_in_the_checkpoint(tmp_path):
    hook, task = CheckpointHook(Keep()), a_task(tmp_path, hooks=[ExchangeHook(1)])
    hook.on_start(task)
    hook.on_phase_start(task)
    task.num_updates = 24
    content = {"iteration_num": 6}
    hook.complete(content, "model_iteration6.torch")
    assert content[SECTION]["samples_done"] == 24
    assert content["iteration_num"] == 5
    assert {"settings", "images", "config"} <= content[SECTION].keys()
    hook.on_end(task)


def test_host__writes_whole_files_and_calls_the_hook_of_the_folder(tmp_path, monkeypatch):
    calls, folder = [], os.path.realpath(tmp_path)
    hook = SimpleNamespace(
        complete=lambda content, name: calls.append(("complete", name)),
        record=lambda content, name: calls.append(("record", name)),
    )
    monkeypatch.setitem(HOOKS, folder, hook)
    writer, name = CheckpointWriter(str(tmp_path), False, "phase", 0, "disk"), "model_phase0.torch"
    writer.save_consolidated_checkpoint({"a": torch.ones(2)})
    assert calls == [("complete", name), ("record", name)]
    assert sorted(os.listdir(tmp_path)) == ["checkpoint.torch", name]
    assert os.readlink(tmp_path / "checkpoint.torch") == name
    before = (tmp_path / name).read_bytes()
    monkeypatch.delitem(HOOKS, folder)
    monkeypatch.setattr(torch, "save", lambda content, file: 1 / file.write(b""))
    with pytest.raises(ZeroDivisionError):
        writer.save_consolidated_checkpoint({})
    assert (tmp_path / name).read_bytes() == before


def test_samples_done__are_of_the_epoch_that_was_stopped():
    data = SimpleNamespace(get_global_batchsize=lambda: 8)
    checkpoint = {"train_phase_idx": 2, SECTION: {"samples_done": 20}}
    task = a_task("", checkpoint=checkpoint, datasets={"train": data})
    task.dataloaders = {"train": range(3)}
    for phase, done in ((2, 20), (3, 20), (4, 0)):
        task.train_phase_idx = phase
        assert samples_done(task) == done
    task.dataloaders, task.train_phase_idx = {"train": range(2)}, 3
    assert samples_done(task) == 16  # an epoch of this batch
