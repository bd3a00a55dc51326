"""What a person sees of the steps of a run."""

import re
from types import SimpleNamespace

import pytest
import torch

from pirl_plugin.checkpoints.host_checkpoint import PLUGIN_SECTION
from pirl_plugin.console import LINE
from pirl_plugin.vissl.hooks.progress import ProgressHook


class Images(list):
    def get_global_batchsize(self):
        return 25


def task(step, epochs=2, per_epoch=4, train=True):
    return SimpleNamespace(
        train=train,
        iteration=step,
        num_updates=25 * step,
        max_iteration=epochs * per_epoch,
        num_train_phases=epochs,
        train_phase_idx=max(step - 1, 0) // per_epoch,
        datasets={"train": Images(range(100))},
        dataloaders={"train": range(per_epoch)},
        config={"DATA": {"TRAIN": {"BATCHSIZE_PER_REPLICA": 25}}},
        last_batch=SimpleNamespace(loss=torch.tensor(2.5)),
        meters=[SimpleNamespace(value={"top_1": {"res5": 45.234}})],
        checkpoint_folder="runs/a",
        checkpoint=None,
    )


@pytest.fixture
def clock(monkeypatch):
    """A clock that a test moves; a step may be shown at each reading 30 s after the last."""
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr(LINE, "_written", 0.0)  # by another test's clock
    return now


def test_hook__shows_epoch_rate_loss_and_time_left(clock, capsys):
    hook = ProgressHook()
    hook.on_start(task(0))
    hook.on_phase_start(task(0))
    for step in range(1, 5):
        clock[0] += 10
        hook.on_update(task(step))
        hook.on_step(task(step))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "training  100 images, 2 epochs, 8 steps"
    # 25 images each 10 s; of 8 steps as many are left as were not made, 10 s each
    found = [re.fullmatch(r"epoch 1/2  step (\d)/4  2 images/s  loss 2.5000  (\d+) s left", line)
             for line in lines[1:]]  # fmt: skip
    assert found
    assert all(match and int(match[2]) == 10 * (8 - int(match[1])) for match in found)


def test_hook__counts_what_is_left_in_steps_of_this_runs_batch(clock, capsys):
    """After 100 of its 200 images in steps of 10 there were ``step 10 of 8`` and ``-0 s left``."""
    hook, resumed = ProgressHook(), task(4)
    resumed.iteration = 10
    hook.on_start(resumed)
    assert capsys.readouterr().out.startswith("resumed   at step 4 of 8")
    hook.on_phase_start(resumed)
    for step in (5, 6):
        clock[0] += 40
        now = task(step)
        now.iteration = step + 6
        hook.on_update(now)
        hook.on_step(now)
    assert capsys.readouterr().out.endswith("  80 s left\n")


def test_hook__counts_one_epoch_of_one_step(capsys):
    ProgressHook().on_start(task(0, epochs=1, per_epoch=1))
    assert capsys.readouterr().out == "training  100 images, 1 epoch, 1 step\n"


def test_hook__goes_on_counting_in_the_middle_of_an_epoch(clock, capsys):
    hook, per_epoch = ProgressHook(), 4
    resumed = task(5, train=True)
    resumed.checkpoint = {"train_phase_idx": 0, PLUGIN_SECTION: {"samples_done": 25}}
    resumed.train_phase_idx = 1
    hook.on_phase_start(resumed)
    for step in range(6, 9):
        clock[0] += 40
        hook.on_update(task(step))
        hook.on_step(task(step))
    hook.on_phase_end(task(8))
    lines = capsys.readouterr().out.splitlines()
    shown = [line.split("  ")[1:3] for line in lines]
    assert shown == [[f"step {step}/{per_epoch}", "1 images/s"] for step in (3, 4)]
    hook.on_phase_start(task(8))
    hook.on_step(task(9))
    assert hook._steps == 1


def test_hook__is_sparse_where_no_terminal_is_watched(clock, capsys):
    hook = ProgressHook()
    hook.on_phase_start(task(0, per_epoch=1000))
    for step in range(1, 1001):
        clock[0] += 0.1  # 100 s in all
        hook.on_update(task(step, per_epoch=1000))
        hook.on_step(task(step, per_epoch=1000))
    assert 2 <= len(capsys.readouterr().out.splitlines()) <= 5


def test_hook__shows_what_a_test_measured_and_the_end(clock, capsys):
    hook = ProgressHook()
    hook.on_phase_end(task(4, train=False))
    clock[0] += 200
    hook.on_end(task(8))
    assert capsys.readouterr().out.splitlines() == [
        "test      epoch 1: top_1 res5 45.23",
        "finished  in 3 min; checkpoints and log.txt in runs/a",
    ]
