"""Stop a run, on all ranks and with nothing saved, where the loss is not finite."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from pirl_plugin.distributed import gather_objects
from pirl_plugin.vissl.hooks.base import QuietHook

if TYPE_CHECKING:
    from vissl.trainer.train_task import SelfSupervisionTask

# Hooks of the host that look at each output: they save the broken model as the newest checkpoint,
# or die looking for the method that would.
_HOSTS = ("LogLossMetricsCheckpointHook", "CheckNanModelOutputHook")


class FiniteHook(QuietHook):
    """Says where an output that is not finite came from: ranks, step and rows."""

    def on_start(self, task: SelfSupervisionTask) -> None:
        """Take the place of the host's own checks of the output."""
        for hook in task.hooks:
            if type(hook).__name__ in _HOSTS:
                hook.on_forward = lambda task: None

    def on_loss_and_meter(self, task: SelfSupervisionTask) -> None:
        """Look at the loss, the mean over all ranks, which the host has just waited for.

        Raises:
            FloatingPointError: it is not finite; the same on all ranks.
            ValueError: because a row is outside the memory bank.
        """
        if math.isfinite(task.losses[-1]):
            return
        if _is_pirl(task):
            largest = max(gather_objects(int(task.last_batch.target.max())))
            task.loss.bank.check_inside(torch.tensor([max(largest, 0)]))
        found = gather_objects(self._not_finite(task))
        bad = [(place, rows) for place, (count, rows) in enumerate(found) if count]
        where = (
            f"the model's output is not finite on rank {', '.join(str(r) for r, _ in bad)}"
            if bad
            else "the loss is not finite, and the model's output is"
        )
        rows = [row for _, of_rank in bad for row in of_rank][:8]
        raise FloatingPointError(
            f"{where}, step {task.iteration}{f', rows {rows}' if rows else ''}: nothing was saved "
            f"from it; start again with a lower learning rate, from the last checkpoint, or look "
            f"at these images"
        )

    @staticmethod
    def _not_finite(task: SelfSupervisionTask) -> tuple[int, list[int]]:
        """Number of this rank's images that are not finite, and the first rows of them."""
        output = task.last_batch.model_output
        outputs = [output] if isinstance(output, torch.Tensor) else list(output)
        target = task.last_batch.target.reshape(-1)
        bad = torch.zeros(len(target), dtype=torch.bool, device=target.device)
        for tensor in outputs:
            if tensor.shape[:1] == bad.shape:
                bad |= ~tensor.flatten(1).isfinite().all(dim=1)
        rows = target[bad & (target >= 0)][:8].tolist()
        if not _is_pirl(task):
            rows = []  # labels, not rows
        return int(bad.sum()), rows


def _is_pirl(task: SelfSupervisionTask) -> bool:
    return bool(task.config.LOSS["name"] == "pirl_loss")
