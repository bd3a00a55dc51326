"""Stop a run, on all ranks and with nothing saved, where the loss is not finite."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from pirl_plugin.distributed import gather_objects
from pirl_plugin.vissl.hooks.base import QuietHook

if TYPE_CHECKING:
    from vissl.trainer.train_task import SelfSupervisionTask

# Hooks of the host that look at each output: they save the broken model as the newest checkpoint.
_HOSTS = ("LogLossMetricsCheckpointHook", "CheckNanModelOutputHook")


class FiniteHook(QuietHook):
    """Says where a loss that is not finite came from: ranks, step and images."""

    def on_start(self, task: SelfSupervisionTask) -> None:
        """Replace the host's own checks of the output."""
        for hook in task.hooks:
            if type(hook).__name__ in _HOSTS:
                hook.on_forward = lambda task: None

    def on_loss_and_meter(self, task: SelfSupervisionTask) -> None:
        """Look at the loss, the mean over all ranks, which the host has just waited for.

        Raises:
            FloatingPointError: it is not finite; the same on all ranks.
            ValueError: because an index is outside the memory bank.
        """
        if math.isfinite(task.losses[-1]):
            return
        index = task.last_batch.target.reshape(-1)
        is_pirl = task.config.LOSS["name"] == "pirl_loss"  # else the target is classes
        if is_pirl:
            largest = max(gather_objects(max([0, *index.tolist()])))
            task.loss.bank.check_inside(torch.tensor([largest]))
        output = task.last_batch.model_output
        bad = torch.zeros(len(index), dtype=torch.bool, device=index.device)
        for tensor in [output] if isinstance(output, torch.Tensor) else output:
            if tensor.shape[:1] == bad.shape:
                bad |= ~tensor.flatten(1).isfinite().all(dim=1)
        found = gather_objects(index[bad].tolist())
        ranks = ", ".join(str(place) for place, of_rank in enumerate(found) if of_rank)
        where = f"the model's output is not finite on rank {ranks}" if ranks else (
            "the loss is not finite, and the model's output is"
        )  # fmt: skip
        rows = [row for of_rank in found for row in of_rank if is_pirl and row >= 0][:8]
        raise FloatingPointError(
            f"{where}, step {task.iteration}{f', rows {rows}' if rows else ''}: nothing was saved "
            f"from it; start again with a lower learning rate, from the last checkpoint, or look "
            f"at these images"
        )
