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


class MonitorHook(QuietHook):
    """Reports the terms of Eq. 5 in each epoch, and measures a sample of the bank's rows after it.

    Terms and the fraction of updated rows go to the log and to TensorBoard. So do the measures,
    which are also a line in ``stdout.json``, with the key ``PIRL_MONITOR``. The hook does not use
    the run's random generators, so results stay bit-identical.

    Args:
        every: steps between reports, ``LOG_FREQUENCY``.
        settings: settings from the ``HOOKS.PIRL_MONITOR`` section.
        tensorboard: VISSL's ``SummaryWriter``; None: not enabled.
        json_lines: VISSL's open ``stdout.json``; None on ranks other than 0.
    """

    def __init__(
        self,
        every: int,
        settings: MonitorSettings,
        tensorboard: Any = None,
        json_lines: Any = None,
    ) -> None:
        super().__init__()
        self.settings = settings
        self._every = every
        self._tensorboard = tensorboard
        self._json_lines = json_lines
        self._loss = torch.tensor(0.0)

    def on_update(self, task: Task) -> None:
        """Report every ``every`` steps. Collective."""
        if not task.train:
            return
        self._loss = task.last_batch.loss.detach()  # the task drops it before the epoch ends
        loss: PIRLLoss = task.loss
        if loss.step % self._every:
            return
        values = {}
        for name, term in loss.last_terms.items():
            values[name] = float(sum_over_ranks(term.clone())) / world_size()  # summed in place
        visited = loss.bank.visited.count_nonzero()
        if not loss.bank.replicated:  # each rank counts its own rows
            visited = sum_over_ranks(visited)
        values["rows visited"] = int(visited) / loss.bank.num_rows
        if rank() == 0:
            self._report("PIRL", values, loss.step)

    def on_phase_end(self, task: Task) -> None:
        """Measure every ``settings.every`` epochs. Collective."""
        settings = self.settings
        is_due = settings.enabled and (task.train_phase_idx + 1) % settings.every == 0
        if not task.train or not is_due:
            return
        bank = task.loss.bank
        rows = torch.tensor(evenly_spaced(bank.num_rows, settings.rows))
        sample = bank.lookup(rows.to(bank.rows.device))
        if rank() == 0:
            labels, groups = read_labels(task.datasets["train"], rows)
            self._report_measures(task, measure_bank(sample, labels, settings.k, groups))

    def _report_measures(self, task: Task, measured: Mapping[str, Measure]) -> None:
        """Write an epoch's measures, and warn about a collapse."""
        epoch = task.train_phase_idx
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
        values: dict[str, float] = {}
        for name, (value, chance) in measured.items():
            values |= {name: value, f"{name} chance": chance}
        self._report(f"PIRL monitor, epoch {epoch}", values, task.loss.step)
        warning = collapse(measured)
        if warning:
            logging.warning(f"PIRL monitor, epoch {epoch}: {warning}")

    def _report(self, title: str, values: Mapping[str, float], step: int) -> None:
        """Write values to the log and, as ``GROUP/NAME``, to TensorBoard."""
        phrases = [f"{name}: {value:.4g}" for name, value in values.items()]
        logging.info(f"{title}: {'; '.join(phrases)}")
        if self._tensorboard is not None:
            group = title.partition(",")[0]
            for name, value in values.items():
                self._tensorboard.add_scalar(f"{group}/{name}".replace(" ", "_"), value, step)


def read_labels(data: Any, rows: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """Return labels and groups for some images in VISSL's data set.

    Args:
        data: VISSL's data set.
        rows: int64 ``(N,)``.

    Returns:
        Each int64 ``(N,)``, or None if the source has none, or several labels per image. The label
        −1 marks an unlabeled image.
    """
    # VISSL draws DATA_LIMIT images when it reads the first one.
    if data.data_limit >= 0:
        return None, None
    source = data.disk.source
    groups = source.groups()
    if groups is not None:
        groups = torch.from_numpy(groups)[rows]
    try:
        labels = torch.from_numpy(source.labels())
    except ValueError:  # it has none
        return None, groups
    return labels[rows] if labels.ndim == 1 else None, groups
