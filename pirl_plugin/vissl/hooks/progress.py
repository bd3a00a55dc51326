"""Epoch, images a second, loss and time left, for the person who watches a run."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pirl_plugin.console import LINE, counted, span
from pirl_plugin.distributed import rank, world_size
from pirl_plugin.vissl.hooks.base import QuietHook

if TYPE_CHECKING:
    from vissl.trainer.train_task import SelfSupervisionTask


class ProgressHook(QuietHook):
    """Writes :data:`pirl_plugin.console.LINE` on rank 0; the rate is the mean of the epoch."""

    def on_start(self, task: SelfSupervisionTask) -> None:
        """Say how much there is to do."""
        self._began = time.monotonic()
        if done := _steps_done(task):
            _say(f"resumed   at step {done:,} of {task.max_iteration:,}")
        if (data := task.datasets.get("train")) is not None:
            epochs = counted(task.num_train_phases, "epoch")
            _say(f"training  {len(data):,} images, {epochs}, {counted(task.max_iteration, 'step')}")

    def on_phase_start(self, task: SelfSupervisionTask) -> None:
        """Begin an epoch; its first step, which starts the loader's workers, is not timed."""
        self._mark: tuple[float, int] | None = None

    def on_step(self, task: SelfSupervisionTask) -> None:
        """Show the step, where it is time to."""
        if rank() != 0 or not task.train:
            return
        done = _steps_done(task)
        began, first = self._mark = self._mark or (time.monotonic(), done)
        per_epoch = max(task.max_iteration // max(task.num_train_phases, 1), 1)
        step = min(done - task.train_phase_idx * per_epoch, per_epoch)
        last = step == per_epoch and task.train_phase_idx + 1 == task.num_train_phases
        if done > first and (last or LINE.due()):
            rate = (done - first) / max(time.monotonic() - began, 1e-9)
            left = span((task.max_iteration - done) / rate)
            LINE.write(
                f"epoch {task.train_phase_idx + 1}/{task.num_train_phases}  "
                f"step {step:,}/{per_epoch:,}  {rate * _batch(task):,.0f} images/s  loss "
                f"{float(task.last_batch.loss):.4f}  {left} left"
            )

    def on_phase_end(self, task: SelfSupervisionTask) -> None:
        """Show what a test measured."""
        for meter in [] if task.train else task.meters:
            _say(f"test      epoch {task.train_phase_idx + 1}: {_shown(meter.value)}")

    def on_end(self, task: SelfSupervisionTask) -> None:
        """Say that the run is over, and where its files are."""
        took = span(time.monotonic() - self._began)
        _say(f"finished  in {took}; checkpoints and log.txt in {task.checkpoint_folder}")


def _say(text: str) -> None:
    if rank() == 0:
        LINE.say(text)


def _batch(task: SelfSupervisionTask) -> int:
    return int(task.config["DATA"]["TRAIN"]["BATCHSIZE_PER_REPLICA"]) * world_size()


def _steps_done(task: SelfSupervisionTask) -> int:
    """Steps of this run's batch; the host's ``iteration`` counts those of earlier batches too."""
    return int(task.num_updates) // _batch(task)


def _shown(value: object) -> str:
    """``{"top_1": {"res5": 45.2}}`` as ``top_1 res5 45.20``."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {_shown(below)}" for key, below in value.items())
    return f"{float(value):.2f}" if isinstance(value, (int, float)) else str(value)
