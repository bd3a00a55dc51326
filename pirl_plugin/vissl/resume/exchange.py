"""Per-step exchange between ranks: unreadable images, requests to save or stop, and NaN.

Row *signal in training* of "How a command ends" (docs/architecture.md).
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from pirl_plugin.system import watcher
from pirl_plugin.system.console import warn
from pirl_plugin.system.failures import Refused
from pirl_plugin.system.ranks import gather_objects, rank, sum_over_ranks, world_size
from pirl_plugin.system.watcher import STOPPING
from pirl_plugin.vissl.task import QuietHook

if TYPE_CHECKING:
    from pirl_plugin.vissl.task import Task

SAVE = 1  # a request; other requests are signal numbers, which are larger
_REQUESTS = (SAVE, *STOPPING)
_WINDOW = 10_000  # images


class ExchangeHook(QuietHook):
    """Sums unreadable images and requests to save or stop over all ranks, once per step.

    It also stops a run whose loss is not finite. A signal reaches ranks at different times, but all
    of them must act on it after the same step.

    Unreadable images are counted in windows of an epoch, at most 10,000 images. Training and test
    images are counted separately.

    Args:
        max_share: largest allowed fraction of unreadable images in a window.

    Attributes:
        saved_at: when the last checkpoint was saved, in ``time.monotonic()``.
        save_after_s: seconds until rank 0 asks to save again; infinity: never.
        agreed: largest request from any rank in this step: 0, ``SAVE`` or a signal number.
    """

    def __init__(self, max_share: float) -> None:
        super().__init__()
        self.max_share = max_share
        self.saved_at = time.monotonic()
        self.save_after_s = math.inf
        self.agreed = 0
        # Split → unreadable images and all images read in the current window.
        self._read = {"train": (0, 0), "test": (0, 0)}
        self._named: set[str] = set()

    def on_phase_end(self, task: Task) -> None:
        """Name the epoch's unreadable files."""
        self._name_unreadable(task)

    def on_loss_and_meter(self, task: Task) -> None:
        """Exchange, and check the mean loss over ranks, which VISSL has just computed.

        Raises:
            Refused: see :meth:`exchange`.
            FloatingPointError: the loss is not finite; all ranks raise it.
        """
        self.exchange(task, task.last_batch.sample)
        if math.isfinite(task.losses[-1]):
            return
        remedy = "Start a new run with a lower learning rate."
        images = task.images
        if images.low:
            remedy = (
                f"The images' values range from {min(images.low):.5g} to "
                f"{max(images.high):.5g}. If one of them marks missing pixels, start a new "
                f"run with config.DATA.TRAIN.NODATA, or else with a lower learning rate."
            )
        raise FloatingPointError(
            f"The loss is not finite in step {task.iteration}, which was not saved. {remedy}"
        )

    def exchange(self, task: Task, sample: Mapping[str, object]) -> None:
        """Count a batch's unreadable images, and agree on a request. Collective.

        Raises:
            Refused: too many images in the window are unreadable; all ranks raise it.
        """
        # Rank 0 asks to save, because clocks differ between ranks. Nothing is saved during a test.
        request = watcher.current().requested
        is_due = time.monotonic() - self.saved_at >= self.save_after_s
        if not request and is_due and task.train and rank() == 0:
            request = SAVE
        # One sum of integers: the image counts, and the number of ranks with each request.
        requests = torch.tensor(_REQUESTS)
        counts = torch.cat([torch.tensor(_count_images(sample)), requests == request])
        device = task.device if world_size() > 1 else "cpu"
        sums = sum_over_ranks(counts.to(device)).cpu()
        self.agreed = int((requests * (sums[2:] > 0)).max())
        # Add the images to those read in the current window.
        split = "train" if task.train else "test"
        num_unreadable, num_images = self._read[split]
        num_unreadable += int(sums[0])
        num_images += int(sums[1])
        window = max(min(len(task.datasets[split]), _WINDOW), num_images)
        if num_unreadable <= self.max_share * window:
            self._read[split] = (num_unreadable, num_images) if num_images < window else (0, 0)
            return
        self._name_unreadable(task)
        paths = map(str, task.config.DATA[split.upper()].DATA_PATHS)
        raise Refused(
            f"{', '.join(paths)}: {num_unreadable:,} of the last {num_images:,} images "
            f"({num_unreadable / num_images:.0%}) are unreadable, more than "
            f"config.HOOKS.PIRL_RUN.max_unreadable = {self.max_share:g} allows. Check that the "
            f"folder is mounted, or replace the files named in log.txt, and run the same command "
            f"again."
        )

    def _name_unreadable(self, task: Task) -> None:
        """Log each unreadable file once, on rank 0. Collective."""
        source = task.datasets["train" if task.train else "test"].disk.source
        of_all_ranks = set().union(*gather_objects(source.unreadable_paths()))
        new = sorted(of_all_ranks - self._named)
        self._named.update(new)
        if new and rank() == 0:
            warn(f"Unreadable files ({len(new)}): {', '.join(new)}")


def _count_images(sample: Mapping[str, object]) -> list[int]:
    """Return how many images in a batch are unreadable, and their total number."""
    valid: Any = sample.get("data_valid", torch.empty(0))  # a benchmark's batch may have none
    if isinstance(valid, list):  # VISSL uses both forms
        valid = valid[0]
    return [int((valid.long() < 1).sum()), valid.numel()]
