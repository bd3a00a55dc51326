"""The few collectives that loss, bank and hooks need; each is the identity in one process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, distributed

if TYPE_CHECKING:
    from collections.abc import Callable


def world_size() -> int:
    """Number of processes."""
    return distributed.get_world_size() if _distributed() else 1


def rank() -> int:
    """This process, from 0."""
    return distributed.get_rank() if _distributed() else 0


def gather(local: Tensor) -> Tensor:
    """``(W·B, …)``: the tensors of all ranks, of equal shapes, in the order of ranks."""
    return start_gather(local)()


def start_gather(local: Tensor) -> Callable[[], Tensor]:
    """Begin :func:`gather`, and go on; what is returned waits for its result and returns it."""
    if world_size() == 1:
        return lambda: local
    everyone = [torch.empty_like(local) for _ in range(world_size())]
    work = distributed.all_gather(everyone, local.contiguous(), async_op=True)

    def finish() -> Tensor:
        work.wait()  # with NCCL the GPU waits, not the host
        return torch.cat(everyone)

    return finish


def sum_over_ranks(local: Tensor) -> Tensor:
    """The sum of all ranks' tensors, in place."""
    if world_size() > 1:
        distributed.all_reduce(local)
    return local


def sum_and_share_out(everyones: Tensor) -> Tensor:
    """Of ``(W·B, …)`` on each rank: the sum over ranks of this rank's ``(B, …)`` part."""
    if world_size() == 1:
        return everyones
    size = everyones.shape[0] // world_size()
    if distributed.get_backend() == "gloo":  # which has no reduce-scatter
        return sum_over_ranks(everyones)[rank() * size : (rank() + 1) * size]
    mine = torch.empty_like(everyones[:size])
    distributed.reduce_scatter_tensor(mine, everyones.contiguous())
    return mine


def _distributed() -> bool:
    return distributed.is_available() and distributed.is_initialized()
