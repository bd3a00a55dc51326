"""Move the memory bank after each optimiser step, the same on every rank."""

from __future__ import annotations

import logging
from typing import Any

import torch
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
        """Start gathering (row, f(v_I)) from all ranks; the loss and its gradient go on meanwhile.

        Not with ``LOSS.pirl_loss.bank.overlap: false``: the gathering is then part of the update.
        """
        self._gathering = None
        if task.train and task.loss.config.bank.overlap:
            self._gathering = _Gathering(task.last_batch.sample["target"], task.last_batch)

    def on_loss_and_meter(self, task: Any) -> None:
        """Send off the answer to whether the embeddings are finite, before the backward pass."""
        if self._gathering is not None:
            self._gathering.finish()

    def on_update(self, task: Any) -> None:
        """Move the rows of the batch.

        Raises:
            FloatingPointError: an embedding is not finite; names rank, step and row, on all ranks
                alike, so that none waits for another.
        """
        if not task.train:
            return
        loss = task.loss
        gathered = self._gathering or _Gathering(task.last_batch.target, task.last_batch)
        self._gathering = None
        gathered.finish()
        if gathered.any_bad:
            bad = gathered.bad
            ranks = (bad.nonzero().flatten() // gathered.batch).unique().tolist()
            raise FloatingPointError(
                f"embeddings f(v_I) are not finite on rank {', '.join(map(str, ranks))}, step "
                f"{loss.step}, rows {gathered.rows[bad][:8].tolist()}: the bank was left as it "
                f"was; lower the learning rate, or look at these images"
            )
        loss.last_move = loss.bank.update(gathered.rows, gathered.embeddings)
        loss.step += 1


class _Gathering:
    """Rows and embeddings on their way from all ranks, and whether they can be used."""

    def __init__(self, target: Tensor, last_batch: Any) -> None:
        rows = target.reshape(-1)
        self.batch = len(rows)
        self._finish_rows = start_gather(rows)
        output = last_batch.model_output  # NPID's is f(v_I) alone, outside a list
        images = output if isinstance(output, Tensor) else output[-1]
        self._finish_embeddings = start_gather(images.detach().float())
        self._finished = False

    def finish(self) -> None:
        """Wait for them, where that has not been done."""
        if not self._finished:
            self._finished = True
            self.rows, self.embeddings = self._finish_rows(), self._finish_embeddings()
            self.bad = ~self.embeddings.isfinite().all(dim=1) & (self.rows >= 0)
            self.any_bad = _ToHost(self.bad.any())


class _ToHost:
    """A truth on its way from the device; reading it waits for its computation and no more."""

    def __init__(self, truth: Tensor) -> None:
        self._truth, self._arrived = truth, None
        if truth.is_cuda:
            self._truth = torch.empty_like(truth, device="cpu", pin_memory=True)
            self._truth.copy_(truth, non_blocking=True)
            self._arrived = torch.cuda.Event()
            self._arrived.record()

    def __bool__(self) -> bool:
        if self._arrived is not None:
            self._arrived.synchronize()
        return bool(self._truth)
