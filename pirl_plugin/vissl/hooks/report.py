"""Reports of a run: terms of the loss, statistics of the bank, progress, and the next commands."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from pirl_plugin.checkpoints.training_run import final_checkpoint
from pirl_plugin.console import LINE, counted, next_commands, span
from pirl_plugin.distributed import rank, sum_over_ranks, world_size
from pirl_plugin.vissl.hooks import QuietHook

if TYPE_CHECKING:
    from vissl.trainer.train_task import SelfSupervisionTask


class PIRLReportHook(QuietHook):
    """Logs each term of Eq. 5 and statistics of the bank's rows, every ``LOG_FREQUENCY`` steps.

    ``row norm`` is the mean norm of the last moved rows, before normalisation. It is 0.71 at first
    (orthogonal, for a weight of 0.5), and approaches 1 as the embeddings converge.
    """

    def on_update(self, task: SelfSupervisionTask) -> None:
        """Log at every ``LOG_FREQUENCY``-th step. Collective."""
        loss = task.loss
        if not task.train or loss.step % task.config["LOG_FREQUENCY"]:
            return
        bank = loss.bank
        shared = bank.replicated and world_size() > 1  # every rank holds the same numbers
        moved = torch.stack([*loss.last_step.moved, bank.visited.count_nonzero().float()])
        moved = moved if shared else sum_over_ranks(moved)
        terms = {
            name: float(sum_over_ranks(value.clone()) / world_size())
            for name, value in loss.last_step.terms.items()
        }
        if rank() != 0:
            return
        norm = float(moved[0] / moved[1].clamp(min=1))
        values = {**terms, "row norm": norm, "rows visited": float(moved[2]) / bank.num_rows}
        logging.info(f"PIRL: {'; '.join(f'{k}: {v:.4f}' for k, v in values.items())}")
        write_scalars(task, "PIRL", values)


def write_scalars(task: SelfSupervisionTask, group: str, values: Mapping[str, float]) -> None:
    """Write values to the host's TensorBoard, if on, as ``GROUP/NAME`` at the loss's step."""
    for hook in task.hooks:
        writer = getattr(hook, "tb_writer", None)
        if writer is not None:
            for name, value in values.items():
                writer.add_scalar(f"{group}/{name.replace(' ', '_')}", value, task.loss.step)


class ProgressHook(QuietHook):
    """Writes :data:`pirl_plugin.console.LINE` on rank 0; the rate is the mean of the epoch."""

    def on_start(self, task: SelfSupervisionTask) -> None:
        """Show the number of images, epochs and steps."""
        self._began = time.monotonic()
        if done := _steps_done(task):
            _say(f"resumed   at step {done:,} of {task.max_iteration:,}")
        if (data := task.datasets.get("train")) is not None:
            epochs = counted(task.num_train_phases, "epoch")
            _say(f"training  {len(data):,} images, {epochs}, {counted(task.max_iteration, 'step')}")

    def on_phase_start(self, task: SelfSupervisionTask) -> None:
        """Begin an epoch. Its first step is not timed, because it starts the loader's workers."""
        self._mark: tuple[float, int] | None = None

    def on_step(self, task: SelfSupervisionTask) -> None:
        """Show the step, if the progress line is due."""
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
        """Show the results of a test."""
        for meter in [] if task.train else task.meters:
            value = re.sub(r"(\.\d\d)\d+", r"\1", str(meter.value))  # two decimals
            _say(f"test      epoch {task.train_phase_idx + 1}: {value}")

    def on_end(self, task: SelfSupervisionTask) -> None:
        """Show that the run has finished, its folder, and the next commands."""
        took = span(time.monotonic() - self._began)
        folder = Path(task.checkpoint_folder)
        _say(f"finished  in {took}; checkpoints and log.txt in {folder}")
        checkpoint = newest_checkpoint(folder)
        if checkpoint is None or task.config["LOSS"]["name"] != "pirl_loss":
            return
        # The paths of the data set: those of the configuration, or of a catalog.
        images = Path(task.datasets["train"].data_paths[0])
        to = "timm" if task.config["MODEL"]["TRUNK"]["NAME"] == "pirl_timm" else "torchvision"
        for command in next_commands(checkpoint, images, to).values():
            _say(f"next      {command}")


def newest_checkpoint(folder: Path) -> Path | None:
    """Return the checkpoint of a finished run: the host's link to it, or the file itself.

    Some file systems have no links. It is None if the run saved no checkpoint.
    """
    link = folder / "checkpoint.torch"
    return link if link.exists() else final_checkpoint(folder)


def _say(text: str) -> None:
    if rank() == 0:
        LINE.say(text)


def _batch(task: SelfSupervisionTask) -> int:
    return int(task.config["DATA"]["TRAIN"]["BATCHSIZE_PER_REPLICA"]) * world_size()


def _steps_done(task: SelfSupervisionTask) -> int:
    """Return the steps in this run's batch size; ``iteration`` counts steps of any batch size."""
    return int(task.num_updates) // _batch(task)
