"""Log loss terms and memory bank measures, and warn about a collapse."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pirl_plugin.evaluation.finished_runs import TESTED
from pirl_plugin.evaluation.measures import LINE_KEY, Measure, collapse, measure_bank
from pirl_plugin.images.source import evenly_spaced
from pirl_plugin.system.files import write_json
from pirl_plugin.system.ranks import rank, sum_over_ranks, world_size
from pirl_plugin.vissl.task import QuietHook

if TYPE_CHECKING:
    from pirl_plugin.method.loss import PIRLLoss
    from pirl_plugin.vissl.sections import MonitorSettings
    from pirl_plugin.vissl.task import Task


def write_scalars(tensorboard: Any, group: str, values: Mapping[str, float], step: int) -> None:
    """Write values as ``GROUP/NAME`` with VISSL's ``SummaryWriter``; None: not enabled."""
    if tensorboard is not None:
        for name, value in values.items():
            tensorboard.add_scalar(f"{group}/{name.replace(' ', '_')}", value, step)


class TestedHook(QuietHook):
    """Records how many test images an accuracy is based on (labeled and readable)."""

    def on_phase_end(self, task: Task) -> None:
        """Write the image count for all ranks, which VISSL has just summed."""
        if task.train or rank() != 0:
            return
        for meter in task.meters:
            if meter.name == "accuracy_list_meter":
                number = int(meter._meters[0]._total_sample_count)
                write_json(Path(task.checkpoint_folder, TESTED), {"images": number})


class PIRLReportHook(QuietHook):
    """Logs the terms of Eq. 5, and the fraction of memory bank rows that have been updated.

    Args:
        every: steps between reports, ``LOG_FREQUENCY``.
        tensorboard: see :func:`write_scalars`.
    """

    def __init__(self, every: int, tensorboard: Any = None) -> None:
        super().__init__()
        self._every = every
        self._tensorboard = tensorboard

    def on_update(self, task: Task) -> None:
        """Log every ``every`` steps. Collective."""
        loss: PIRLLoss = task.loss
        if not task.train or loss.step % self._every:
            return
        values = {}
        for name, term in loss.last_terms.items():
            values[name] = float(sum_over_ranks(term.clone())) / world_size()  # summed in place
        visited = loss.bank.visited.count_nonzero()
        if not loss.bank.replicated:  # each rank counts its own rows
            visited = sum_over_ranks(visited)
        values["rows visited"] = int(visited) / loss.bank.num_rows
        if rank() == 0:
            phrases = [f"{name}: {value:.4f}" for name, value in values.items()]
            logging.info(f"PIRL: {'; '.join(phrases)}")
            write_scalars(self._tensorboard, "PIRL", values, loss.step)


class MonitorHook(QuietHook):
    """Measures a sample of the bank's rows.

    Writes to the log, to ``stdout.json`` (a line with the key ``PIRL_MONITOR``) and to TensorBoard.
    It does not use the run's random generators, so results stay bit-identical.

    Args:
        settings: settings from the ``HOOKS.PIRL_MONITOR`` section.
        tensorboard: see :func:`write_scalars`.
        json_lines: VISSL's open ``stdout.json``; None on ranks other than 0.
    """

    def __init__(
        self, settings: MonitorSettings, tensorboard: Any = None, json_lines: Any = None
    ) -> None:
        super().__init__()
        self.settings = settings
        self._tensorboard = tensorboard
        self._json_lines = json_lines
        self._loss = torch.tensor(0.0)

    def on_update(self, task: Task) -> None:
        """Keep the loss, which the task drops before the epoch ends."""
        if task.train:
            self._loss = task.last_batch.loss.detach()

    def on_phase_end(self, task: Task) -> None:
        """Measure every ``every`` epochs. Collective."""
        if not task.train or (task.train_phase_idx + 1) % self.settings.every:
            return
        bank = task.loss.bank
        rows = torch.tensor(evenly_spaced(bank.num_rows, self.settings.rows))
        sample = bank.lookup(rows.to(bank.rows.device))
        if rank() == 0:
            data = task.datasets["train"]
            labels = read_labels(data, rows)
            groups = read_groups(data, rows)
            self._report(task, measure_bank(sample, labels, self.settings.k, groups), len(rows))

    def _report(self, task: Task, measured: Mapping[str, Measure], num_rows: int) -> None:
        """Write the measures of some rows, and warn about a collapse."""
        epoch = task.train_phase_idx
        rows = f"{num_rows:,} of {task.loss.bank.num_rows:,} rows"
        phrases = []
        scalars: dict[str, float] = {}
        for name, (value, chance) in measured.items():
            phrases.append(f"{name}: {value:.4g} (chance: {chance:.4g})")
            scalars |= {name: value, f"{name} chance": chance}
        logging.info(f"PIRL monitor, epoch {epoch}, {rows}: {'; '.join(phrases)}")
        # The first keys match VISSL's own lines, for programs that read every line.
        line: dict[str, Any] = {
            "Rank": 0,
            "ep": epoch,
            "iter": task.iteration - 1,
            "loss": float(self._loss),
            LINE_KEY: {name: measure._asdict() for name, measure in measured.items()},
        }
        if self._json_lines is not None:
            self._json_lines.write(json.dumps(line) + "\n")
            self._json_lines.flush()
        write_scalars(self._tensorboard, "PIRL_monitor", scalars, task.loss.step)
        warning = collapse(measured)
        if warning:
            logging.warning(f"PIRL monitor, epoch {epoch}: {warning}")


def read_labels(data: Any, rows: Tensor) -> Tensor | None:
    """Return labels for some images in VISSL's data set.

    Args:
        data: VISSL's data set.
        rows: int64 ``(N,)``.

    Returns:
        int64 ``(N,)``, −1 for an unlabeled image; None if the source has no labels, or several per
        image.
    """
    if data.data_limit >= 0:  # VISSL draws the images when it reads the first one
        return None
    try:
        labels = torch.as_tensor(data.data_objs[0].get_labels())
    except (AttributeError, ValueError):  # AttributeError: a source without get_labels
        return None
    return labels[rows].long() if labels.ndim == 1 else None


def read_groups(data: Any, rows: Tensor) -> Tensor | None:
    """Return groups for some images, int64 ``(N,)``; None if the source has none."""
    groups = None if data.disk is None else data.disk.source.groups()
    return None if groups is None else torch.from_numpy(groups)[rows]
