"""Log loss terms and memory bank measures, and warn about a collapse."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
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
    from pirl_plugin.method.bank import MemoryBank
    from pirl_plugin.method.loss import PIRLLoss
    from pirl_plugin.vissl.sections import MonitorSettings
    from pirl_plugin.vissl.task import Task


@dataclass(frozen=True)
class Outputs:
    """VISSL's TensorBoard writer and its ``stdout.json``.

    Attributes:
        tensorboard: VISSL's ``SummaryWriter``; None without ``USE_TENSORBOARD``.
        json_lines: the open ``stdout.json``; None on ranks other than 0.
    """

    tensorboard: Any = None
    json_lines: Any = None

    def write_scalars(self, group: str, values: Mapping[str, float], step: int) -> None:
        """Write values to TensorBoard as ``GROUP/NAME``, if it is enabled."""
        if self.tensorboard is None:
            return
        for name, value in values.items():
            self.tensorboard.add_scalar(f"{group}/{name.replace(' ', '_')}", value, step)


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
        outputs: where to write.
    """

    def __init__(self, every: int, outputs: Outputs) -> None:
        super().__init__()
        self._every = every
        self._outputs = outputs

    def on_update(self, task: Task) -> None:
        """Log every ``every`` steps. Collective."""
        loss: PIRLLoss = task.loss
        if not task.train or loss.step % self._every:
            return
        values = _mean_terms(loss) | {"rows visited": _share_visited(loss.bank)}
        if rank() == 0:
            phrases = [f"{name}: {value:.4f}" for name, value in values.items()]
            logging.info(f"PIRL: {'; '.join(phrases)}")
            self._outputs.write_scalars("PIRL", values, loss.step)


def _mean_terms(loss: PIRLLoss) -> dict[str, float]:
    """Return each loss term, averaged over all ranks. Collective."""
    means = {}
    for name, term in loss.last_terms.items():
        total = sum_over_ranks(term.clone())  # summed in place
        means[name] = float(total / world_size())
    return means


def _share_visited(bank: MemoryBank) -> float:
    """Return the fraction of rows that have been updated. Collective."""
    count = bank.visited.count_nonzero()
    if not bank.replicated:  # each rank counts its own rows
        count = sum_over_ranks(count)
    return int(count) / bank.num_rows


class MonitorHook(QuietHook):
    """Measures a sample of the bank's rows.

    Writes to the log, to ``stdout.json`` (a line with the key ``PIRL_MONITOR``) and to TensorBoard.
    It does not use the run's random generators, so results stay bit-identical.

    Args:
        settings: settings from the ``HOOKS.PIRL_MONITOR`` section.
        outputs: VISSL's outputs.
    """

    def __init__(self, settings: MonitorSettings, outputs: Outputs) -> None:
        super().__init__()
        self.settings = settings
        self._outputs = outputs
        self._rows = torch.empty(0, dtype=torch.int64)
        self._labels: Tensor | None = None
        self._groups: Tensor | None = None
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
        if len(self._rows) == 0:  # the first time
            self._rows = torch.tensor(evenly_spaced(bank.num_rows, self.settings.rows))
            if rank() == 0:
                self._labels = read_labels(task.datasets["train"], self._rows)
                self._groups = read_groups(task.datasets["train"], self._rows)
        sample = bank.lookup(self._rows.to(bank.rows.device))
        if rank() == 0:
            measured = measure_bank(sample, self._labels, self.settings.k, self._groups)
            self._report(task, measured)

    def _report(self, task: Task, measured: Mapping[str, Measure]) -> None:
        """Write the measures, and warn about a collapse."""
        epoch = task.train_phase_idx
        rows = f"{len(self._rows):,} of {task.loss.bank.num_rows:,} rows"
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
        file = self._outputs.json_lines
        if file is not None:
            file.write(json.dumps(line) + "\n")
            file.flush()
        self._outputs.write_scalars("PIRL_monitor", scalars, task.loss.step)
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
    disk = getattr(data, "disk", None)  # a source of this plugin
    groups = None if disk is None else disk.source.groups()
    return None if groups is None else torch.from_numpy(groups)[rows]
