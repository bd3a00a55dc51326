"""The memory bank of a checkpoint: in the file itself, or in shards beside it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from pirl_plugin.checkpoints.run_folder import shards_of_step
from pirl_plugin.sharded_bank import ShardedMemoryBank

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor


def bank_rows(content: Mapping[str, object], path: Path) -> Tensor | None:
    """Rows of the bank that a checkpoint's loss has, in the order of the data set.

    Args:
        content: of the checkpoint.
        path: its file; shards are in ``memory_bank/step_STEP`` beside it.

    Returns:
        float (N, dim), N the images of the data set, or None: the checkpoint is of no loss with a
        bank, or was moved without its shards.

    Raises:
        DamagedError: the shards cannot be read.
        ValueError: they were saved by a newer version.
    """
    loss = _loss_state(content)
    extra = loss.get("_extra_state")
    step = extra.get("step") if isinstance(extra, Mapping) else None
    if "bank.rows" in loss or step is None:
        return loss.get("bank.rows")
    folder = path.parent / shards_of_step(step)
    if not folder.is_dir():
        return None
    logging.root.info(f"the memory bank is read from {folder}")
    shard = torch.load(next(folder.glob("*.torch")), weights_only=True, mmap=True)
    num_rows, dim = shard["num_rows"], shard["rows"].shape[1]
    bank = ShardedMemoryBank(num_rows, dim)
    bank.load(folder)
    return bank.lookup(torch.arange(num_rows))


def _loss_state(content: Mapping[str, object]) -> Mapping[str, Any]:
    """The state of the loss, where the host keeps it, or one level below in its older form."""
    for level in (content, content.get("classy_state_dict")):
        loss = level.get("loss") if isinstance(level, Mapping) else None
        if isinstance(loss, Mapping) and loss:
            return loss
    return {}
