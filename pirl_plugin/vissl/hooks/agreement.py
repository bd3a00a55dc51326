"""Ranks agree on a number without waiting for each other."""

from __future__ import annotations

import torch
from torch import Tensor, distributed

from pirl_plugin.distributed import world_size


class Agreement:
    """The largest of all ranks' numbers, known on all of them one exchange later.

    A signal reaches ranks at different moments; all must act on it after the same step. The
    reduction runs beside the training step, and nothing waits for it: a GPU hands its result over
    on a stream of its own, or the host would wait for all that the step has queued.

    Args:
        device: where the process group reduces.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._under_way: tuple[distributed.Work, Tensor] | None = None

    def exchange(self, number: int) -> int:
        """Collective: offer ``number``; returns the largest of those offered the time before.

        In one process it is ``number`` itself.
        """
        if world_size() == 1:
            return number
        before = self.finish()
        offered = torch.full((1,), number, dtype=torch.int32, device=self._device)
        work = distributed.all_reduce(offered, distributed.ReduceOp.MAX, async_op=True)
        self._under_way = work, offered
        return before

    def finish(self) -> int:
        """Wait for what is under way and return its result; 0 where nothing is."""
        if self._under_way is None:
            return 0
        work, offered = self._under_way
        self._under_way = None
        with torch.cuda.stream(self._stream):  # None: the current one
            work.wait()
            return int(offered)
