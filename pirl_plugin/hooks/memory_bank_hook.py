"""Move the memory bank after each optimiser step, the same on every rank."""

from __future__ import annotations

import logging
import math
from typing import Any

from torch import Tensor, distributed

from pirl_plugin.hooks.base import QuietHook
from pirl_plugin.memory.collectives import start_gather, world_size


class MemoryBankHook(QuietHook):
    """Feeds f(v_I) of the valid images of all ranks to the bank, in training only (Sec. 2.2)."""

    def __init__(self) -> None:
        super().__init__()
        self._gathering: _Gathering | None = None

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

    def on_forward(self, task: Any) -> None:
        """Start gathering (row, f(v_I)) from all ranks; the loss is computed meanwhile.

        Not with ``LOSS.pirl_loss.bank.overlap: false``: the gathering is then part of the update.
        """
        self._gathering = None
        if task.train and task.loss.config.bank.overlap:
            self._gathering = _Gathering(task.last_batch.sample["target"], task)

    def on_loss_and_meter(self, task: Any) -> None:
        """Where the loss is not finite, say whose embeddings are not; the host would say neither.

        The host has just waited for the loss, and here as in the update nothing else is waited for.

        Raises:
            FloatingPointError: an embedding is not finite.
            ValueError: a row is outside the bank.
        """
        if task.train and not math.isfinite(task.losses[-1]):  # the mean over all ranks
            gathering = self._gathering or _Gathering(task.last_batch.target, task)
            gathering.check()

    def on_update(self, task: Any) -> None:
        """Move the rows of the batch.

        Raises:
            FloatingPointError, ValueError: as above, on a CPU, if nobody looked before.
        """
        if not task.train:
            return
        gathered = self._gathering or _Gathering(task.last_batch.target, task)
        self._gathering = None
        if task.device.type == "cpu":
            gathered.check()
        task.loss.last_move = task.loss.bank.update(*gathered.finish())
        task.loss.step += 1


class _Gathering:
    """Rows and embeddings on their way from all ranks."""

    def __init__(self, target: Tensor, task: Any) -> None:
        self._loss, rows = task.loss, target.reshape(-1)
        self._batch = len(rows)
        output = task.last_batch.model_output  # NPID's is f(v_I) alone, outside a list
        images = output if isinstance(output, Tensor) else output[-1]
        self._finish = (start_gather(rows), start_gather(images.detach().float()))
        self._arrived: tuple[Tensor, Tensor] | None = None

    def finish(self) -> tuple[Tensor, Tensor]:
        """Rows ``(W·B,)`` and embeddings ``(W·B, D)``."""
        if self._arrived is None:
            rows, embeddings = (finish() for finish in self._finish)
            self._arrived = rows, embeddings
        return self._arrived

    def check(self) -> None:
        """Raise what is wrong with them, on all ranks alike, so that none waits for another.

        Raises:
            FloatingPointError: an embedding is not finite; names ranks, step and rows.
            ValueError: a row is outside the bank; names it.
        """
        rows, embeddings = self.finish()
        num_rows = self._loss.bank.num_rows
        if rows.max() >= num_rows:
            raise ValueError(
                f"row {int(rows.max())} is outside the memory bank of {num_rows} rows: the bank "
                f"was made for another data set; set LOSS.pirl_loss.num_train_samples to this one's"
            )
        bad = ~embeddings.isfinite().all(dim=1) & (rows >= 0)
        if bad.any():
            ranks = (bad.nonzero().flatten() // self._batch).unique().tolist()
            raise FloatingPointError(
                f"embeddings f(v_I) are not finite on rank {', '.join(map(str, ranks))}, step "
                f"{self._loss.step}, rows {rows[bad][:8].tolist()}: the bank was left as it was; "
                f"lower the learning rate, or look at these images"
            )
