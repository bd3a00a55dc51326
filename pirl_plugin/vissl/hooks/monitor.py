"""At the end of an epoch: what the memory bank is worth so far, and whether it collapses."""

from __future__ import annotations

import json
import logging
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pirl_plugin.distributed import gather, rank, sum_over_ranks, world_size
from pirl_plugin.evaluation.bank_measures import LINE_KEY, Measure, collapse, measure_bank
from pirl_plugin.evaluation.measures import random_effective_rank
from pirl_plugin.utils.rows import evenly_spaced
from pirl_plugin.vissl.hooks.base import QuietHook, write_scalars
from pirl_plugin.vissl.hooks.rows import limited_to
from pirl_plugin.vissl.sections import read_section

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vissl.config import AttrDict
    from vissl.trainer.train_task import SelfSupervisionTask

_WORDS = {  # measure -> as the log names it, and what its chance is called
    "knn_top1": ("kNN top-1", "most frequent class"),
    "effective_rank": ("effective rank", "random"),
    "uniformity": ("uniformity", "random"),
    "alignment": ("alignment", "other images"),
    "cos_f_m": ("cos(f, m)", "other rows"),
    "cos_g_m": ("cos(g, m)", "other rows"),
    "score_spread": ("spread of scores", "random"),
}


@dataclass(frozen=True)
class MonitorSettings:
    """Values of ``HOOKS.PIRL_MONITOR``, all optional.

    Attributes:
        enabled: whether anything is measured.
        every: epochs from one measurement to the next.
        rows: size of the sample of the memory bank's rows, evenly spread over the data set.
        k: neighbours of the leave-one-out kNN, where the images have classes.
        share: largest share of the training time that measuring may take; where it would take
            more, epochs are left out.
    """

    enabled: bool = True
    every: int = 1
    rows: int = 2048
    k: int = 20
    share: float = 0.01

    def __post_init__(self) -> None:
        for name, least in (("every", 1), ("rows", 2), ("k", 1)):
            if getattr(self, name) < least:
                raise ValueError(
                    f"config.HOOKS.PIRL_MONITOR.{name} = {getattr(self, name)}: expected a whole "
                    f"number of at least {least}"
                )
        if not 0 < self.share <= 1:
            raise ValueError(
                f"config.HOOKS.PIRL_MONITOR.share = {self.share}: expected a share above 0, at "
                f"most 1; set 0.01"
            )

    @classmethod
    def from_config(cls, config: AttrDict) -> MonitorSettings:
        """Read them from the host's whole configuration."""
        return read_section(cls, config, "HOOKS.PIRL_MONITOR")


class MonitorHook(QuietHook):
    """Measures a sample of the bank's rows, and embeddings of the epoch's last steps.

    In the log, in ``stdout.json`` (a line with the key ``PIRL_MONITOR``), and in TensorBoard. It
    reads what the loss computed anyway, draws no random number of the run's and changes nothing:
    results are the same to the bit without it.

    Args:
        settings: of the section.
    """

    def __init__(self, settings: MonitorSettings) -> None:
        super().__init__()
        self.settings = settings
        self._steps: deque[tuple[dict[str, Tensor], Tensor, Tensor]] = deque()
        self._began = 0.0
        self._trained = self._spent = self._last = 0.0  # seconds, of this process
        self._labels: Tensor | None = None
        self._loss = torch.zeros(())
        self._said_skipped = self._collapsed = False

    def on_start(self, task: SelfSupervisionTask) -> None:
        """Choose the rows, the same on all ranks, and read their classes on the first."""
        total = task.loss.bank.num_rows
        self._rows = torch.tensor(evenly_spaced(total, self.settings.rows))
        if rank() == 0:
            self._labels = labels_of(task, self._rows)
            # Measured once, now.
            random_effective_rank(len(self._rows), task.loss.bank.rows.shape[1])

    def on_phase_start(self, task: SelfSupervisionTask) -> None:
        """Begin to count the epoch's time."""
        self._began = time.perf_counter()
        self._steps.clear()

    def on_update(self, task: SelfSupervisionTask) -> None:
        """Keep references to what the loss compared; nothing is computed or waited for."""
        if not task.train:
            return
        step = task.loss.last_step
        self._loss = task.last_batch.loss.detach()
        self._steps.append((step.queries, step.positives, step.valid))
        while (len(self._steps) - 1) * len(step.valid) * world_size() >= len(self._rows):
            self._steps.popleft()

    def on_phase_end(self, task: SelfSupervisionTask) -> None:
        """Collective: measure, unless too much of the training time went into it already."""
        if not task.train or not self._steps:
            return
        began = time.perf_counter()
        self._trained += began - self._began
        if (task.train_phase_idx + 1) % self.settings.every:
            return
        share = self.settings.share  # 1: every epoch, however short
        due = rank() != 0 or share >= 1 or self._spent + self._last <= share * self._trained
        if not _all(due, task.device):
            if not self._said_skipped and rank() == 0:
                logging.info(
                    f"PIRL monitor: measuring takes more than {self.settings.share:.2%} of the "
                    f"training time (HOOKS.PIRL_MONITOR.share): some epochs are left out"
                )
            self._said_skipped = True
            return
        sample = task.loss.bank.sample(self._rows.to(task.loss.bank.rows.device))
        pairs = self._pairs()
        self._steps.clear()
        if rank() == 0:
            measured = measure_bank(sample, self._labels, **pairs, k=self.settings.k)
            self._report(task, measured, time.perf_counter() - began)
        self._last = time.perf_counter() - began
        self._spent += self._last

    def _pairs(self) -> dict[str, Tensor]:
        """Collective: f, g and m of the last steps' valid images on all ranks, ``(B, D)`` each."""
        valid = gather(torch.cat([valid for _, _, valid in self._steps]))
        found = {"m": gather(torch.cat([positives for _, positives, _ in self._steps]).float())}
        terms = list(self._steps[-1][0])
        named = {"g": next((t for t in terms if t.startswith("invariance")), None), "f": "image"}
        for name, term in named.items():
            if term in terms:
                found[name] = gather(torch.cat([queries[term] for queries, _, _ in self._steps]))
        return {name: tensor[valid] for name, tensor in found.items()} if valid.any() else {}

    def _report(
        self, task: SelfSupervisionTask, measured: Mapping[str, Measure], seconds: float
    ) -> None:
        """Write the measures everywhere, and name a collapse when it begins and when it ends."""
        epoch = task.train_phase_idx
        said = "; ".join(
            f"{_WORDS[name][0]}: {value:.4g} ({_WORDS[name][1]}: {chance:.4g})"
            for name, (value, chance) in measured.items()
        )
        rows = f"{len(self._rows):,} of {task.loss.bank.num_rows:,} rows"
        share = (self._spent + seconds) / max(self._trained, seconds)
        logging.info(
            f"PIRL monitor, epoch {epoch}, {rows}: {said}; measured in {seconds:.3f} s, "
            f"{share:.2%} of the training time so far"
        )
        line = {  # iter and loss as in the host's own lines, for programs that read every line
            "Rank": 0,
            "ep": epoch,
            "iter": task.iteration - 1,  # the step just done
            "loss": round(float(self._loss), 5),
            LINE_KEY: {name: {"value": v, "chance": c} for name, (v, c) in measured.items()},
        }
        for hook in task.hooks:
            log = getattr(hook, "json_stdout_logger", None)
            if log is not None:
                log.write(json.dumps(line) + "\n")
        write_scalars(
            task,
            "PIRL_monitor",
            {
                **{name: value for name, (value, _) in measured.items()},
                **{f"{name} chance": chance for name, (_, chance) in measured.items()},
            },
        )
        found = collapse(measured)
        if found and not self._collapsed:
            logging.warning(f"PIRL monitor, epoch {epoch}: {found}")
        elif self._collapsed and not found:
            logging.warning(f"PIRL monitor, epoch {epoch}: the embeddings differ again")
        self._collapsed = found is not None


def labels_of(task: SelfSupervisionTask, rows: Tensor) -> Tensor | None:
    """Classes of training images, ``(N,)`` int64; None, and a line in the log, without a kNN.

    Args:
        task: the host's.
        rows: ``(N,)`` int64, of the data set.
    """
    data = task.datasets.get("train")
    source = next(iter(getattr(data, "data_objs", [])), None)
    try:
        if source is None or not hasattr(source, "get_labels"):
            raise ValueError("the data source has no labels")
        labels = torch.as_tensor(source.get_labels())
        if labels.ndim != 1:
            raise ValueError("an image has several classes")
        subset = limited_to(data)
        chosen = labels[rows if subset is None else torch.as_tensor(subset)[rows]].long()
        if len(chosen.unique()) < 2:
            raise ValueError("the images have one class")
    except ValueError as error:
        logging.info(f"PIRL monitor: no kNN, as {error}")
        return None
    return chosen


def _all(due: bool, device: torch.device) -> bool:
    """Collective: whether ``due`` holds on all ranks."""
    return int(sum_over_ranks(torch.tensor([int(not due)], device=device))) == 0
