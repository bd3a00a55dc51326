"""Report the loss's terms and the memory bank's statistics, in the log and in TensorBoard."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import torch

from pirl_plugin.distributed import rank, sum_over_ranks, world_size
from pirl_plugin.vissl.hooks.base import QuietHook, write_scalars

if TYPE_CHECKING:
    from vissl.trainer.train_task import SelfSupervisionTask


class PIRLReportHook(QuietHook):
    """Every ``LOG_FREQUENCY`` steps: each term of Eq. 5, and the statistics of the bank's rows.

    ``row norm`` is the mean norm of the rows just moved, before they were normalised: 0.71 at first
    (orthogonal, for a weight of 0.5), towards 1 as embeddings settle.
    """

    def on_update(self, task: SelfSupervisionTask) -> None:
        """Collective at the steps that are reported, and nothing at the others."""
        loss = task.loss
        if not task.train or loss.step % task.config["LOG_FREQUENCY"]:
            return
        bank = loss.bank
        shared = bank.persistent and world_size() > 1  # every rank holds the same numbers
        moved = torch.stack([*loss.last_step.moved, bank.visited.count_nonzero().float()])
        moved = moved if shared else sum_over_ranks(moved)
        terms = {
            name: float(sum_over_ranks(value.clone()) / world_size())
            for name, value in loss.last_step.terms.items()
        }
        if rank() != 0:
            return
        norm = float(moved[0] / moved[1].clamp(min=1))
        values = {**terms, "row norm": norm, "rows visited": float(moved[2]) / bank.num_rows}
        logging.info(f"PIRL: {'; '.join(f'{k}: {v:.4f}' for k, v in values.items())}")
        write_scalars(task, "PIRL", values)
