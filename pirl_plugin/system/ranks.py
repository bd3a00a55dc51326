"""Collectives for loss, bank and hooks; in a single process, each is the identity."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor, distributed

Value = TypeVar("Value")


def world_size() -> int:
    """Return the number of processes."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return 1
    return distributed.get_world_size()


def rank() -> int:
    """Return this process's rank, from 0."""
    return distributed.get_rank() if world_size() > 1 else 0


def gather(local: Tensor) -> Tensor:
    """Return ``(W·B, …)``: the tensors from all ranks in rank order, which have equal shapes."""
    if world_size() == 1:
        return local
    everyone = [torch.empty_like(local) for _ in range(world_size())]
    distributed.all_gather(everyone, local.contiguous())
    return torch.cat(everyone)


def sum_over_ranks(local: Tensor) -> Tensor:
    """Sum the tensors from all ranks, in place."""
    if world_size() > 1:
        distributed.all_reduce(local)
    return local


def gather_objects(local: Value) -> list[Value]:
    """Return the objects from all ranks in rank order. They are pickled, so keep them small."""
    everyone = [local] * world_size()
    if world_size() > 1:
        distributed.all_gather_object(everyone, local)
    return everyone


@contextmanager
def errors_on_all_ranks() -> Iterator[None]:
    """If a block fails on one rank, raise the error on all ranks. Collective.

    Otherwise the other ranks would wait for the failed rank.
    """
    if world_size() == 1:
        yield
        return
    error: Exception | None = None
    try:
        yield
    except Exception as raised:
        error = raised
    for error_of_rank in gather_objects(error):
        if error_of_rank is not None:
            raise error_of_rank


def has_lost_rank(error: BaseException) -> bool:
    """Return whether an error means that another rank ended or does not respond.

    NCCL and the store raise torch's error types. Gloo raises a plain ``RuntimeError``: if a rank is
    lost, its connection is closed, and this rank cannot start sending to it.
    """
    if world_size() == 1 or not isinstance(error, RuntimeError):
        return False
    if isinstance(error, distributed.DistError):
        return True
    if type(error) is not RuntimeError or distributed.get_backend() != "gloo":
        return False
    for peer in range(world_size()):
        if peer != rank():
            try:
                distributed.isend(torch.zeros(1), peer)
            except RuntimeError:
                return True
    return False
