"""Stop a run whose images cannot be read: a mount that has gone, a list of wrong paths."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

import torch
from torch import distributed

from pirl_plugin.distributed import gather_objects, rank, world_size
from pirl_plugin.vissl.hooks.base import QuietHook

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vissl.trainer.train_task import SelfSupervisionTask

WINDOW = 10_000  # images
NAMED = 100  # files that the log names at the end of an epoch, at most


class UnreadableDataError(RuntimeError):
    """More images could not be read than the run may go on without."""

    stops_training = True


class UnreadableShare:
    """How many of the last images could not be read.

    Until ``window`` images were seen, those to come count as readable, so that a few broken files
    among the first images stop nothing, and a lost mount is noticed after ``max_share`` of them.

    Args:
        window: number of images looked back on.
        max_share: share of them that may be unreadable.

    Example:
        >>> share = UnreadableShare(window=100, max_share=0.05)
        >>> share.exceeded(unreadable=4, images=8), share.exceeded(unreadable=2, images=8)
        (False, True)
    """

    def __init__(self, window: int, max_share: float) -> None:
        self.window, self.max_share = window, max_share
        self._steps: deque[tuple[int, int]] = deque()
        self.unreadable = self._images = 0

    def exceeded(self, unreadable: int, images: int) -> bool:
        """Count a step's images, of all ranks; whether too many could not be read."""
        self._steps.append((unreadable, images))
        self.unreadable += unreadable
        self._images += images
        while self._images - self._steps[0][1] >= self.window:
            old = self._steps.popleft()
            self.unreadable -= old[0]
            self._images -= old[1]
        return self.unreadable > self.max_share * max(self.window, self._images)


class UnreadableHook(QuietHook):
    """Counts, over all ranks, the images of each step that could not be read.

    The count travels while the loss is computed, and is read where the host has waited for the
    loss anyway. All ranks see the same count and stop at the same step, before the optimiser's.

    Args:
        max_share: of unreadable images.
    """

    def __init__(self, max_share: float) -> None:
        super().__init__()
        self.max_share = max_share
        self._share: UnreadableShare | None = None
        self._counts: torch.Tensor | None = None
        self._work: distributed.Work | None = None
        self._named: set[str] = set()

    def on_phase_start(self, task: SelfSupervisionTask) -> None:
        """Start counting again: training and test images are other files."""
        size = len(task.datasets["train" if task.train else "test"])
        self._share = UnreadableShare(min(WINDOW, size), self.max_share)

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
                f"{', '.join(new[:NAMED])}{', …' if len(new) > NAMED else ''}"
            )

    def on_forward(self, task: SelfSupervisionTask) -> None:
        """Begin to add the ranks' counts."""
        self.begin(task, task.last_batch.sample)

    def on_loss_and_meter(self, task: SelfSupervisionTask) -> None:
        """Stop on all ranks where too many could not be read.

        Raises:
            UnreadableDataError: says how many and what to do.
        """
        self.end(task)

    def begin(self, task: SelfSupervisionTask, sample: Mapping[str, object]) -> None:
        """Begin to add the ranks' counts of a batch."""
        valid = sample.get("data_valid")
        valid = valid[0] if isinstance(valid, list) else valid  # the host gives both
        if not isinstance(valid, torch.Tensor):
            self._counts = None
            return
        bad = (valid.reshape(-1).long() < 1).sum()
        self._counts = torch.stack([bad, torch.full_like(bad, valid.numel())]).to(task.device)
        self._work = None
        if world_size() > 1:
            self._work = distributed.all_reduce(self._counts, async_op=True)

    def end(self, task: SelfSupervisionTask) -> None:
        """Look at the sum of the counts that were begun to be added.

        Raises:
            UnreadableDataError: too many could not be read.
        """
        if self._counts is None or self._share is None:
            return
        if self._work is not None:
            self._work.wait()
        unreadable, images = self._counts.tolist()
        if self._share.exceeded(unreadable, images):
            split = "TRAIN" if task.train else "TEST"
            raise UnreadableDataError(
                f"config.DATA.{split}.DATA_PATHS = {list(task.config.DATA[split].DATA_PATHS)}: "
                f"{self._share.unreadable} of the last {self._share.window} images cannot be read, "
                f"expected at most config.HOOKS.PIRL_RUN.max_unreadable = {self.max_share:g} of "
                f"them; see that the folder is mounted and the paths exist, and start the same "
                f"command again, which goes on from the last checkpoint; to go on without the "
                f"files named above, remove them and set config.HOOKS.PIRL_RUN.changed_data=match"
            )
