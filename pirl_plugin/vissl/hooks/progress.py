"""Reports of a run: terms of the loss, statistics of the bank, progress, and the next commands."""

from __future__ import annotations

import logging
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from pirl_plugin.checkpoints.training_run import final_checkpoint
from pirl_plugin.system.console import LINE, counted, next_commands, span
from pirl_plugin.system.ranks import rank, sum_over_ranks, world_size
from pirl_plugin.vissl.hooks import QuietHook
from pirl_plugin.vissl.hooks.outputs import Outputs

if TYPE_CHECKING:
    from vissl.config import AttrDict

    from pirl_plugin.method.loss import PIRLLoss
    from pirl_plugin.vissl.task import Task


class PIRLReportHook(QuietHook):
    """Logs each term of Eq. 5 and statistics of the bank's rows.

    ``row norm`` is the mean norm of the last moved rows, before normalisation. It is 0.71 at first
    (orthogonal, for a weight of 0.5), and approaches 1 as the embeddings converge.

    Args:
        every: steps from one report to the next, ``LOG_FREQUENCY``.
        outputs: the host's outputs.
    """

    def __init__(self, every: int, outputs: Outputs) -> None:
        super().__init__()
        self._every = every
        self._outputs = outputs

    def on_update(self, task: Task) -> None:
        """Log, every ``every`` steps. Collective."""
        loss: PIRLLoss = task.loss
        if not task.train or loss.step % self._every:
            return
        values = _mean_terms(loss) | _bank_statistics(loss)
        if rank() == 0:
            phrases = [f"{name}: {value:.4f}" for name, value in values.items()]
            logging.info(f"PIRL: {'; '.join(phrases)}")
            self._outputs.write_scalars("PIRL", values, loss.step)


def _mean_terms(loss: PIRLLoss) -> dict[str, float]:
    """Return the means over ranks of the loss's terms. Collective."""
    means = {}
    for name, term in loss.last_step.terms.items():
        total = sum_over_ranks(term.clone())  # a copy: it sums in place
        means[name] = float(total / world_size())
    return means


def _bank_statistics(loss: PIRLLoss) -> dict[str, float]:
    """Return the mean norm of the last moved rows, and the share of visited rows. Collective."""
    bank = loss.bank
    sum_of_norms, num_moved = loss.last_step.moved
    counts = torch.stack([sum_of_norms, num_moved, bank.visited.count_nonzero().float()])
    if not bank.replicated:  # each rank counts its own rows; of a replicated bank, all rows
        counts = sum_over_ranks(counts)
    total_norm, total_moved, num_visited = counts.tolist()
    return {
        "row norm": total_norm / max(total_moved, 1),
        "rows visited": num_visited / bank.num_rows,
    }


class ProgressHook(QuietHook):
    """Writes :data:`pirl_plugin.system.console.LINE` on rank 0; the rate is the mean of the epoch.

    Args:
        images_per_step: number of images in a step of all ranks.
        export_to: format of the export among the next commands, ``torchvision`` or ``timm``; None:
            the end of the run prints no commands.
    """

    def __init__(self, images_per_step: int, export_to: str | None = None) -> None:
        super().__init__()
        self._images_per_step = images_per_step
        self._export_to = export_to
        self._began = time.monotonic()
        # Time and number of the first step of the epoch that this process has seen.
        self._first_step: tuple[float, int] | None = None

    @classmethod
    def from_config(cls, config: AttrDict) -> ProgressHook:
        """Build the hook from the host's configuration."""
        ranks = config.DISTRIBUTED.NUM_NODES * config.DISTRIBUTED.NUM_PROC_PER_NODE
        export_to = None
        if config.LOSS.name == "pirl_loss":
            export_to = "timm" if config.MODEL.TRUNK.NAME == "pirl_timm" else "torchvision"
        return cls(config.DATA.TRAIN.BATCHSIZE_PER_REPLICA * ranks, export_to)

    def on_start(self, task: Task) -> None:
        """Show the number of images, epochs and steps."""
        self._began = time.monotonic()
        steps_done = self._steps_done(task)
        if steps_done:
            _say(f"resumed   at step {steps_done:,} of {task.max_iteration:,}")
        if "train" in task.datasets:
            images = f"{len(task.datasets['train']):,} images"
            epochs = counted(task.num_train_phases, "epoch")
            _say(f"training  {images}, {epochs}, {counted(task.max_iteration, 'step')}")

    def on_phase_start(self, task: Task) -> None:
        """Begin an epoch. Its first step is not timed, because it starts the loader's workers."""
        self._first_step = None

    def on_step(self, task: Task) -> None:
        """Show the step, if the progress line is due."""
        if rank() != 0 or not task.train:
            return
        steps_done = self._steps_done(task)
        if self._first_step is None:
            self._first_step = (time.monotonic(), steps_done)
            return
        per_epoch = max(task.max_iteration // max(task.num_train_phases, 1), 1)
        step = min(steps_done - task.train_phase_idx * per_epoch, per_epoch)
        is_last = step == per_epoch and task.train_phase_idx + 1 == task.num_train_phases
        if not (is_last or LINE.due()):
            return
        began, first = self._first_step
        steps_per_s = (steps_done - first) / max(time.monotonic() - began, 1e-9)
        LINE.write(
            f"epoch {task.train_phase_idx + 1}/{task.num_train_phases}  "
            f"step {step:,}/{per_epoch:,}  "
            f"{steps_per_s * self._images_per_step:,.0f} images/s  "
            f"loss {float(task.last_batch.loss):.4f}  "
            f"{span((task.max_iteration - steps_done) / steps_per_s)} left"
        )

    def on_phase_end(self, task: Task) -> None:
        """Show the results of a test."""
        if task.train:
            return
        for meter in task.meters:
            value = re.sub(r"(\.\d\d)\d+", r"\1", str(meter.value))  # two decimals
            _say(f"test      epoch {task.train_phase_idx + 1}: {value}")

    def on_end(self, task: Task) -> None:
        """Show that the run has finished, its folder, and the next commands."""
        took = span(time.monotonic() - self._began)
        folder = Path(task.checkpoint_folder)
        _say(f"finished  in {took}; checkpoints and log.txt in {folder}")
        checkpoint = newest_checkpoint(folder)
        if checkpoint is None or self._export_to is None:
            return
        # The paths of the data set: those of the configuration, or of a catalog.
        images = Path(task.datasets["train"].data_paths[0])
        for command in next_commands(checkpoint, images, self._export_to).values():
            _say(f"next      {command}")

    def _steps_done(self, task: Task) -> int:
        """Return the steps of this run's batch size; ``iteration`` counts steps of any size."""
        return int(task.num_updates) // self._images_per_step


def newest_checkpoint(folder: Path) -> Path | None:
    """Return the checkpoint of a finished run: the host's link to it, or the file itself.

    Some file systems have no links. It is None if the run saved no checkpoint.
    """
    link = folder / "checkpoint.torch"
    return link if link.exists() else final_checkpoint(folder)


def _say(text: str) -> None:
    if rank() == 0:
        LINE.say(text)
