"""The few collectives that loss, bank and hooks need; each is the identity in one process."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

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


def start_all_to_all(local: Tensor, sent: list[int], received: list[int]) -> Callable[[], Tensor]:
    """Begin to send each rank its part of ``local``; what is returned waits for the others' parts.

    Args:
        local: ``(sum(sent), …)``, parts for all ranks in their order.
        sent: lengths of the parts.
        received: lengths of the parts that the ranks send to this one.

    Returns:
        A function that returns ``(sum(received), …)``, parts of all ranks in their order.
    """
    if world_size() == 1:
        return lambda: local
    parts = local.new_empty(sum(received), *local.shape[1:])
    work = distributed.all_to_all_single(parts, local.contiguous(), received, sent, async_op=True)
    assert work is not None, "every rank is of the default group"

    def finish() -> Tensor:
        work.wait()  # with NCCL the GPU waits, not the host
        return parts

    return finish


_Object = TypeVar("_Object")


def gather_objects(local: _Object) -> list[_Object]:
    """What each rank has, in the order of ranks; pickled: for small, infrequent objects."""
    everyone = [local] * world_size()
    if world_size() > 1:
        distributed.all_gather_object(everyone, local)
    return everyone


def on_all_ranks(work: Callable[[], None]) -> None:
    """Collective: do ``work`` on each rank; where it fails on one, raise its error on all.

    None of them then waits for another that has failed.
    """
    error: Exception | None = None
    try:
        work()
    except Exception as raised:
        if world_size() == 1:
            raise
        error = raised
    failed = next((found for found in gather_objects(error) if found is not None), None)
    if failed is not None:
        raise failed


def on_first_rank(work: Callable[[], None]) -> None:
    """Collective: do ``work`` on rank 0 while the others wait; raise its error on all."""
    on_all_ranks(work if rank() == 0 else lambda: None)


def _distributed() -> bool:
    return distributed.is_available() and distributed.is_initialized()
