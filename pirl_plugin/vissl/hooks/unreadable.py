"""Stop a run whose images cannot be read: a mount that has gone, a list of wrong paths."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

import torch

from pirl_plugin.distributed import gather_objects, rank, sum_over_ranks
from pirl_plugin.vissl.hooks.base import QuietHook

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vissl.trainer.train_task import SelfSupervisionTask

WINDOW = 10_000  # images looked back on
_NAMED = 100  # files that the log names at the end of an epoch, at most


class UnreadableHook(QuietHook):
    """Counts, over all ranks, the images of the last steps that could not be read.

    Until a window of images was seen, those to come count as readable: a few broken files among the
    first images stop nothing, and a lost mount is noticed after ``max_share`` of a window.
    """

    def __init__(self, max_share: float) -> None:
        super().__init__()
        self.max_share = max_share
        self._named: set[str] = set()

    def on_phase_start(self, task: SelfSupervisionTask) -> None:
        """Start counting again: training and test images are other files."""
        self._window = min(WINDOW, len(task.datasets["train" if task.train else "test"]))
        self._steps: deque[tuple[int, int]] = deque()  # unreadable images, all images
        self._unreadable = self._images = 0

    def on_phase_end(self, task: SelfSupervisionTask) -> None:
        """Collective: name the unreadable files of all ranks in rank 0's log, each once."""
        data = task.datasets["train" if task.train else "test"]
        sources = [s for s in getattr(data, "data_objs", []) if hasattr(s, "unreadable_paths")]
        found = gather_objects([path for source in sources for path in source.unreadable_paths()])
        new = sorted({path for of_rank in found for path in of_rank} - self._named)
        self._named.update(new)
        if new and rank() == 0:
            logging.warning(
                f"{len(new)} files could not be read, and were left out of loss and memory bank: "
                f"{', '.join(new[:_NAMED])}{', …' if len(new) > _NAMED else ''}"
            )

    def on_loss_and_meter(self, task: SelfSupervisionTask) -> None:
        """Count where the host has waited for the loss anyway, before the optimiser's step."""
        self.count(task, task.last_batch.sample)

    def count(self, task: SelfSupervisionTask, sample: Mapping[str, object]) -> None:
        """Collective: count a batch's unreadable images.

        Raises:
            RuntimeError: too many of the last images could not be read; the same on all ranks.
        """
        valid = sample.get("data_valid")
        valid = valid[0] if isinstance(valid, list) else valid  # the host gives both
        if not isinstance(valid, torch.Tensor):
            return
        bad = (valid.reshape(-1).long() < 1).sum()
        counts = torch.stack([bad, torch.full_like(bad, valid.numel())]).to(task.device)
        unreadable, images = sum_over_ranks(counts).tolist()
        self._steps.append((unreadable, images))
        self._unreadable += unreadable
        self._images += images
        while self._images - self._steps[0][1] >= self._window:
            old = self._steps.popleft()
            self._unreadable -= old[0]
            self._images -= old[1]
        if self._unreadable > self.max_share * max(self._window, self._images):
            split = "TRAIN" if task.train else "TEST"
            raise RuntimeError(
                f"config.DATA.{split}.DATA_PATHS = {list(task.config.DATA[split].DATA_PATHS)}: "
                f"{self._unreadable} of the last {self._window} images cannot be read, expected at "
                f"most config.HOOKS.PIRL_RUN.max_unreadable = {self.max_share:g} of them; see that "
                f"the folder is mounted, and start the same command again, which goes on from the "
                f"last checkpoint"
            )
