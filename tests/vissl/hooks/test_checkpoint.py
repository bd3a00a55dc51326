"""When a run saves by itself, and that all ranks do so after the same step."""

import os
import signal
from types import SimpleNamespace

import pytest
import torch
from vissl.config import AttrDict
from vissl.hooks.log_hooks import LogLossMetricsCheckpointHook

from pirl_plugin.checkpoints.host_checkpoint import PLUGIN_SECTION
from pirl_plugin.checkpoints.initial_weights import RECORD
from pirl_plugin.checkpoints.run_folder import Keep
from pirl_plugin.vissl.hooks import checkpoint as vissl_checkpoint_hook
from pirl_plugin.vissl.hooks.checkpoint import CheckpointHook
from tests.helpers.processes import run_in_processes


class HostHook(LogLossMetricsCheckpointHook):
    """Remembers the steps that it is asked to save."""

    def __init__(self):
        super().__init__(world_size=1)
        self.saved = []

    def _checkpoint_model(self, task, mode_frequency, mode_num, mode="phase"):
        assert (mode_frequency, mode) == (1, "iteration")
        self.saved.append(mode_num)


def a_task(folder, params_file="", **more):
    model = {"TRUNK": {"NAME": "resnet"}, "WEIGHTS_INIT": {"PARAMS_FILE": str(params_file)}}
    task = SimpleNamespace(
        hooks=[],
        checkpoint=None,
        checkpoint_path=None,
        checkpoint_folder=str(folder),
        device=torch.device("cpu"),
        train=True,
        train_phase_idx=0,
        num_updates=0,
        config=AttrDict({"MODEL": model}),
        amp_grad_scaler=None,
    )
    return SimpleNamespace(**{**vars(task), **more})


def steps(folder, minutes, signals=None, num_steps=8, every=-1):
    """Run the hook's steps; returns those that were saved, and the exit status."""
    host = HostHook()
    hook = CheckpointHook(Keep(EVERY_MINUTES=minutes))
    task = a_task(folder, hooks=[hook, host])
    task.config.CHECKPOINT = AttrDict({"CHECKPOINT_ITER_FREQUENCY": every})
    hook.on_start(task)
    hook.on_phase_start(task)
    try:
        for task.iteration in range(1, num_steps + 1):
            for number in (signals or {}).get(task.iteration, ()):
                os.kill(os.getpid(), number)
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


@pytest.mark.parametrize(
    ("numbers", "status"),
    [
        ([signal.SIGTERM], 143),
        ([signal.SIGUSR2], 140),
        ([signal.SIGTERM, signal.SIGUSR2], 140),  # which requeues
        ([signal.SIGUSR2, signal.SIGTERM], 140),
    ],
)
@pytest.mark.parametrize("every", [-1, 3])
def test_hook__saves_and_stops_on_signals(tmp_path, numbers, status, every):
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR2)]
    assert steps(tmp_path, 0, {3: numbers}, every=every) == ([3], status)
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR2)] == before


def test_hook__a_signal_in_a_test_ends_it_with_nothing_saved(tmp_path, caplog):
    """It was noted, and the test went on to its end: SLURM killed the job before it was requeued.

    A wish by time, offered in the last step of training, is offered again in the next epoch.
    """
    host, hook = HostHook(), CheckpointHook(Keep(EVERY_MINUTES=1e-9))
    task = a_task(tmp_path, hooks=[hook, host], iteration=1)
    task.config.CHECKPOINT = AttrDict({"CHECKPOINT_ITER_FREQUENCY": -1})
    hook.on_start(task)
    task.train = False
    hook.on_phase_start(task)
    for _ in range(3):
        hook.on_step(task)
    os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(SystemExit) as stopped:
        hook.on_step(task)
    hook.on_end(task)
    assert (host.saved, stopped.value.code) == ([], 143)
    assert "stopped by SIGTERM in a test; the same command goes on from the" in caplog.text


def _on_rank(rank, world_size, folder, minutes, signals):
    return steps(folder, minutes, signals.get(rank))


@pytest.mark.parametrize(
    ("minutes", "signals", "saved", "status"),
    [
        (1e-9, {}, [2, 4, 6, 8], 0),  # rank 0's wish is known a step later
        (0, {1: {3: [signal.SIGTERM]}, 2: {4: [signal.SIGUSR2]}}, [4], 143),
    ],
)
def test_ranks__save_after_the_same_step(tmp_path, minutes, signals, saved, status):
    results = run_in_processes(_on_rank, 3, tmp_path, minutes, signals)
    assert results == [(saved, status)] * 3


def test_weights__are_those_of_the_very_start(tmp_path, monkeypatch):
    monkeypatch.setattr(vissl_checkpoint_hook, "resume_settings", lambda config: {})
    first, other = tmp_path / "a.torch", tmp_path / "b.torch"
    first.write_bytes(b"a")
    other.write_bytes(b"b")

    def recorded(file, **resumed):
        hook = CheckpointHook(Keep())
        task = a_task(tmp_path / "out", file, **resumed)
        (tmp_path / "out").mkdir(exist_ok=True)
        hook.on_start(task)
        hook.on_end(task)
        return hook._section(task, False)

    section = recorded(first)
    path = str(tmp_path / "out" / "model_phase0.torch")
    assert section[RECORD]["MODEL.WEIGHTS_INIT.PARAMS_FILE"] == [[str(first), "1-e8b7be43"]]
    for before in (section, {}):  # of an earlier version, which did not say
        content = {PLUGIN_SECTION: before}
        assert recorded(other, checkpoint=content, checkpoint_path=path)[RECORD] == before.get(
            RECORD
        )


def test_loss_scale__goes_on_where_it_was(tmp_path, monkeypatch):
    """The host's checkpoints leave it out: each resume began with overflows again."""
    monkeypatch.setattr(vissl_checkpoint_hook, "resume_settings", lambda config: {})

    def section_of(scaler, **resumed):
        hook, task = CheckpointHook(Keep()), a_task(tmp_path, amp_grad_scaler=scaler, **resumed)
        hook.on_start(task)
        hook.on_end(task)
        return hook._section(task, False)

    first = torch.amp.GradScaler("cpu", init_scale=8.0)
    first.scale(torch.ones(()))  # from then on it counts
    section = section_of(first)
    path = str(tmp_path / "model_phase0.torch")
    torch.save(section, path)
    saved = torch.load(path, weights_only=True)
    resumed = {"checkpoint": {PLUGIN_SECTION: saved}, "checkpoint_path": path}
    second = torch.amp.GradScaler("cpu")
    assert section_of(second, **resumed)["grad_scaler"] == section["grad_scaler"]
    assert second.get_scale() == 8
    for without in (None, torch.amp.GradScaler("cpu", enabled=False)):
        assert "grad_scaler" not in section_of(without, **resumed)
