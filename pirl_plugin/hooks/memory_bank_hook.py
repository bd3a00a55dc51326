"""Move the memory bank after each optimiser step, the same on every rank."""

from __future__ import annotations

import logging
from typing import Any

from torch import Tensor, distributed

from pirl_plugin.hooks.base import QuietHook
from pirl_plugin.memory.collectives import gather, world_size


class MemoryBankHook(QuietHook):
    """Feeds f(v_I) of the valid images of all ranks to the bank, in training only (Sec. 2.2)."""

    def on_start(self, task: Any) -> None:
        """See that the bank has a row for each training image, and the same rows on each rank."""
        loss = task.loss
        expected = len(task.datasets["train"]) if "train" in task.datasets else loss.bank.num_rows
        if loss.bank.num_rows != expected:
            # The configuration says otherwise, or the host sized the loss by another split.
            logging.warning(
                f"The memory bank had {loss.bank.num_rows} rows for {expected} training images: "
                f"made anew with {expected}"
            )
            loss.resize(expected)
            loss.to(task.device)
        if world_size() > 1 and loss.bank.persistent:
            distributed.broadcast(loss.bank.rows, src=0)

    def on_update(self, task: Any) -> None:
        """Gather (row, f(v_I)) from all ranks and move those rows.

        Raises:
            FloatingPointError: an embedding is not finite; names rank, step and row, on all ranks
                alike, so that none waits for another.
        """
        if not task.train:
            return
        loss = task.loss
        rows = task.last_batch.target.reshape(-1)
        output = task.last_batch.model_output  # NPID's is f(v_I) alone, outside a list
        images = output if isinstance(output, Tensor) else output[-1]
        embeddings = images.detach().float()
        batch, rows, embeddings = len(rows), gather(rows), gather(embeddings)
        bad = ~embeddings.isfinite().all(dim=1) & (rows >= 0)
        if bad.any():
            ranks = (bad.nonzero().flatten() // batch).unique().tolist()
            raise FloatingPointError(
                f"embeddings f(v_I) are not finite on rank {', '.join(map(str, ranks))}, step "
                f"{loss.step}, rows {rows[bad][:8].tolist()}: the bank was left as it was; lower "
                f"the learning rate, or look at these images"
            )
        loss.last_move = loss.bank.update(rows, embeddings)
        loss.step += 1
