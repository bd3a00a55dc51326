"""Measures of the memory bank at the end of an epoch, and a warning if it collapses."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pirl_plugin.distributed import gather, rank
from pirl_plugin.evaluation.features import evenly_spaced
from pirl_plugin.evaluation.measures import LINE_KEY, Measure, collapse, measure_bank
from pirl_plugin.failures import Refused
from pirl_plugin.vissl.hooks import QuietHook
from pirl_plugin.vissl.hooks.report import write_scalars

if TYPE_CHECKING:
    from vissl.trainer.train_task import SelfSupervisionTask

    from pirl_plugin.loss import LastStep
    from pirl_plugin.vissl.sections import MonitorSettings


class MonitorHook(QuietHook):
    """Measures a sample of the bank's rows, and embeddings of the epoch's last step.

    Writes to the log, to ``stdout.json`` (a line with the key ``PIRL_MONITOR``) and to TensorBoard.
    It draws no random numbers of the run, so the results do not change by a single bit.
    """

    def __init__(self, settings: MonitorSettings) -> None:
        super().__init__()
        self.settings = settings
        self._labels: Tensor | None = None

    def on_start(self, task: SelfSupervisionTask) -> None:
        """Choose the rows, the same on all ranks, and read their classes on rank 0."""
        self._rows = torch.tensor(evenly_spaced(task.loss.bank.num_rows, self.settings.rows))
        if rank() == 0:
            self._labels = labels_of(task, self._rows)

    def on_update(self, task: SelfSupervisionTask) -> None:
        """Keep the loss: at the end of the epoch, the task no longer has it."""
        self._loss = task.last_batch.loss.detach()

    def on_phase_end(self, task: SelfSupervisionTask) -> None:
        """Collective: measure, every ``every`` epochs."""
        step = task.loss.last_step
        due = (task.train_phase_idx + 1) % self.settings.every == 0
        if not (task.train and due and step.queries):
            return
        sample = task.loss.bank.lookup(self._rows.to(task.loss.bank.rows.device))
        pairs = _pairs(step)
        if rank() == 0:
            self._report(task, measure_bank(sample, self._labels, **pairs, k=self.settings.k))

    def _report(self, task: SelfSupervisionTask, measured: Mapping[str, Measure]) -> None:
        """Write the measures to all outputs, and warn of a collapse."""
        epoch = task.train_phase_idx
        rows = f"{len(self._rows):,} of {task.loss.bank.num_rows:,} rows"
        parts = [f"{name}: {v:.4g} (chance: {c:.4g})" for name, (v, c) in measured.items()]
        logging.info(f"PIRL monitor, epoch {epoch}, {rows}: {'; '.join(parts)}")
        # The first keys are as in the host's own lines, for programs that read every line.
        line = {"Rank": 0, "ep": epoch, "iter": task.iteration - 1, "loss": float(self._loss)}
        values = {name: {"value": v, "chance": c} for name, (v, c) in measured.items()}
        for hook in task.hooks:
            log = getattr(hook, "json_stdout_logger", None)
            if log is not None:
                log.write(json.dumps({**line, LINE_KEY: values}) + "\n")
        scalars = {name: value for name, (value, _) in measured.items()}
        scalars |= {f"{name} chance": chance for name, (_, chance) in measured.items()}
        write_scalars(task, "PIRL_monitor", scalars)
        if found := collapse(measured):
            logging.warning(f"PIRL monitor, epoch {epoch}: {found}")


def _pairs(step: LastStep) -> dict[str, Tensor]:
    """Collective: return f, g and m of a step's valid images on all ranks, ``(B, D)`` each."""
    transformed = [term for term in step.queries if term.startswith("invariance")]
    found = {
        "f": step.queries.get("image"),
        "g": step.queries[transformed[0]] if transformed else None,
        "m": step.positives.float(),
    }
    valid = gather(step.valid)
    pairs = {name: gather(tensor)[valid] for name, tensor in found.items() if tensor is not None}
    return pairs if valid.any() else {}


def labels_of(task: SelfSupervisionTask, rows: Tensor) -> Tensor | None:
    """Return the classes of training images ``rows``, int64 ``(N,)``; None if there are none."""
    data = task.datasets["train"]
    try:
        if data.data_limit >= 0:  # the host chooses the images when it reads the first one
            raise Refused("config.DATA.TRAIN.DATA_LIMIT chooses the images")
        labels = torch.as_tensor(data.data_objs[0].get_labels())
    except (AttributeError, ValueError) as error:  # a data source without classes
        logging.info(f"PIRL monitor: no kNN, because {error}")
        return None
    return labels[rows].long() if labels.ndim == 1 else None  # 2 dimensions: several classes
