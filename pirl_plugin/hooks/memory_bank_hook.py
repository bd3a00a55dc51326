"""Move the memory bank after each optimiser step, the same on every rank."""

from __future__ import annotations

import logging
from typing import Any

import torch
from classy_vision.hooks.classy_hook import ClassyHook
from torch import Tensor, distributed

from pirl_plugin.memory import MemoryBank


class MemoryBankHook(ClassyHook):
    """Feeds f(v_I) of the valid images of all ranks to the bank, in training only (Sec. 2.2)."""

    on_phase_start = ClassyHook._noop
    on_forward = ClassyHook._noop
    on_loss_and_meter = ClassyHook._noop
    on_backward = ClassyHook._noop
    on_step = ClassyHook._noop
    on_phase_end = ClassyHook._noop
    on_end = ClassyHook._noop

    def on_start(self, task: Any) -> None:
        """See that the bank has a row for each training image, and the same rows on each rank."""
        loss = task.loss
        found = loss.bank.rows.shape[0]
        expected = len(task.datasets["train"]) if "train" in task.datasets else found
        if found != expected:
            # The host sizes losses by the last split it finds, which may be the test split.
            logging.warning(
                f"The memory bank had {found} rows for {expected} training images: made anew with "
                f"{expected}"
            )
            config = loss.config
            config.num_train_samples = expected
            loss.bank = MemoryBank(
                expected,
                config.embedding_dim,
                momentum=config.bank.momentum,
                dtype=config.bank.dtype,
                seed=config.bank.seed,
            ).to(task.device)
        if _world_size() > 1:
            distributed.broadcast(loss.bank.rows, src=0)

    def on_update(self, task: Any) -> None:
        """Gather (row, f(v_I)) from all ranks and move those rows.

        Raises:
            FloatingPointError: an embedding is not finite; names rank, step and row.
        """
        if not task.train:
            return
        loss = task.loss
        rows = task.last_batch.target.reshape(-1)
        embeddings = task.last_batch.model_output[-1].detach().float()
        if not embeddings.isfinite().all():
            bad = rows[~embeddings.isfinite().all(dim=1)]
            raise FloatingPointError(
                f"embeddings f(v_I) are not finite on rank {_rank()}, step {loss.step}, rows "
                f"{bad[:8].tolist()}: the bank was left as it was; lower the learning rate, or "
                f"look at these images"
            )
        loss.bank.update(_gather(rows), _gather(embeddings))
        loss.step += 1


def _gather(local: Tensor) -> Tensor:
    """``(W·B, …)``: the tensors of all ranks, which have equal shapes, in the order of ranks."""
    if _world_size() == 1:
        return local
    everyone = [torch.empty_like(local) for _ in range(_world_size())]
    distributed.all_gather(everyone, local.contiguous())
    return torch.cat(everyone)


def _world_size() -> int:
    initialized = distributed.is_available() and distributed.is_initialized()
    return distributed.get_world_size() if initialized else 1


def _rank() -> int:
    return distributed.get_rank() if _world_size() > 1 else 0
