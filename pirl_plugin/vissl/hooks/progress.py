"""Epoch, images a second, loss and time left, for the person who watches a run."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pirl_plugin.console import LINE, counted, span
from pirl_plugin.distributed import rank, world_size
from pirl_plugin.vissl.hooks.base import QuietHook
from pirl_plugin.vissl.hooks.resume import samples_done

if TYPE_CHECKING:
    from torch import Tensor
    from vissl.trainer.train_task import SelfSupervisionTask


class ProgressHook(QuietHook):
    """Writes :data:`pirl_plugin.console.LINE` on rank 0; the host's log is not touched.

    The rate is that of the last steps; the time left counts training alone.
    """

    def __init__(self) -> None:
        super().__init__()
        self._began = time.monotonic()
        self._before = 0  # steps of this epoch that were made before the run was resumed
        self._steps = 0
        self._rate = 0.0
        self._mark: tuple[float, int] = (0.0, 0)
        self._loss: float | Tensor = 0.0

    def on_start(self, task: SelfSupervisionTask) -> None:
        """Say how much there is to do."""
        self._began = time.monotonic()
        if rank() != 0:
            return
        data = task.datasets.get("train")
        if done := _steps_done(task):
            LINE.say(f"resumed   at step {done:,} of {task.max_iteration:,}")
        if data is not None:
            epochs = counted(task.num_train_phases, "epoch")
            LINE.say(f"training  {len(data):,} images, {epochs}, {_steps(task)}")

    def on_phase_start(self, task: SelfSupervisionTask) -> None:
        """Begin to count; the first step, which starts the loader's workers, is left out."""
        self._before = samples_done(task) // _batch(task) if task.train else 0
        self._steps, self._mark = self._before, (time.monotonic(), self._before)

    def on_update(self, task: SelfSupervisionTask) -> None:
        """Keep the loss, on its device."""
        self._loss = task.last_batch.loss.detach()

    def on_step(self, task: SelfSupervisionTask) -> None:
        """Show the step, where it is time to."""
        self._steps += 1
        if rank() != 0 or not task.train:
            return
        if self._steps == self._before + 1:
            self._mark = (time.monotonic(), self._steps)
        elif LINE.due():
            self._show(task)

    def _show(self, task: SelfSupervisionTask) -> None:
        now, (began, steps) = time.monotonic(), self._mark
        if now > began and self._steps > steps:
            rate = (self._steps - steps) / (now - began)
            self._rate = rate if not self._rate else 0.7 * self._rate + 0.3 * rate
            self._mark = (now, self._steps)
        left = (task.max_iteration - _steps_done(task)) / self._rate if self._rate else 0.0
        per_epoch = max(task.max_iteration // max(task.num_train_phases, 1), 1)
        LINE.write(
            f"epoch {task.train_phase_idx + 1}/{task.num_train_phases}  "
            f"step {self._steps:,}/{per_epoch:,}  {self._rate * _batch(task):,.0f} images/s  "
            f"loss {float(self._loss):.4f}  {span(left)} left"
        )

    def on_phase_end(self, task: SelfSupervisionTask) -> None:
        """Show the end of an epoch, and what a test measured."""
        if rank() != 0:
            return
        if task.train:
            if self._mark[1] != self._steps and (
                LINE.due() or task.train_phase_idx + 1 == task.num_train_phases
            ):
                self._show(task)
            return
        for meter in task.meters:
            LINE.say(f"test      epoch {task.train_phase_idx + 1}: {_shown(meter.value)}")

    def on_end(self, task: SelfSupervisionTask) -> None:
        """Say that the run is over, and where its files are."""
        if rank() == 0:
            took = span(time.monotonic() - self._began)
            LINE.say(f"finished  in {took}; checkpoints and log.txt in {task.checkpoint_folder}")


def _batch(task: SelfSupervisionTask) -> int:
    """Images of a step, of all ranks."""
    return int(task.config["DATA"]["TRAIN"]["BATCHSIZE_PER_REPLICA"]) * world_size()


def _steps_done(task: SelfSupervisionTask) -> int:
    """Steps of this run's batch; the host's ``iteration`` counts those of earlier batches too."""
    return int(task.num_updates) // _batch(task)


def _steps(task: SelfSupervisionTask) -> str:
    return counted(task.max_iteration, "step")


def _shown(value: object) -> str:
    """``{"top_1": {"res5": 45.2}}`` as ``top_1 res5 45.20``."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {_shown(below)}" for key, below in value.items())
    return f"{float(value):.2f}" if isinstance(value, (int, float)) else str(value)
