"""A process that torchrun started: its rank, its nodes, and its store."""

from __future__ import annotations

import datetime
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omegaconf import DictConfig


def local_rank() -> int | None:
    """Return this process's rank on its node; None if torchrun did not start it."""
    return int(os.environ["LOCAL_RANK"]) if "TORCHELASTIC_RUN_ID" in os.environ else None


def follow(composed: DictConfig) -> None:
    """If torchrun started this process, take nodes, processes and rendezvous from torchrun.

    Args:
        composed: the whole configuration, with ``node_id`` and ``config``; changed in place.
    """
    if local_rank() is None:
        return
    variables = os.environ
    composed.node_id = int(variables["GROUP_RANK"])
    composed.config.DISTRIBUTED.update(
        NUM_NODES=int(variables["GROUP_WORLD_SIZE"]),
        NUM_PROC_PER_NODE=int(variables["LOCAL_WORLD_SIZE"]),
        INIT_METHOD="tcp",  # the host allows env only on one node; torch finds torchrun's store
        RUN_ID=f"{variables['MASTER_ADDR']}:{variables['MASTER_PORT']}",
    )


def store(timeout: datetime.timedelta) -> Any:
    """Return torchrun's store, ``torch.distributed.Store``; on one node, for this attempt only.

    torchrun keeps one store for all attempts (pytorch issue 135712). So a rank could read the
    address of a process of an earlier attempt. On several nodes, the attempt numbers may differ.

    Args:
        timeout: how long a rank waits for a key.
    """
    from torch import distributed

    shared, _, _ = next(distributed.rendezvous("env://", timeout=timeout))
    shared.set_timeout(timeout)
    if os.environ["GROUP_WORLD_SIZE"] != "1":
        return shared
    attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
    return distributed.PrefixStore(f"attempt_{attempt}", shared)
