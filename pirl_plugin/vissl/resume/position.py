"""Patches of the host's loader: resume within an epoch; workers ignore stop signals."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from itertools import islice
from multiprocessing import active_children
from multiprocessing.util import Finalize
from typing import Any

from torch.utils.data import DistributedSampler

from pirl_plugin.vissl.resume.signals import STOPPING


class ResumingSampler(DistributedSampler[Any]):
    """``DistributedSampler`` without the first ``start_iter`` batches; ``len`` counts all batches.

    A last batch of one image is left out: BatchNorm may need two values.

    Example:
        >>> sampler = ResumingSampler(range(10), batch_size=2, num_replicas=2, rank=0)
        >>> whole = list(sampler)
        >>> sampler.set_start_iter(1)
        >>> list(sampler) == whole[2:], len(sampler)
        (True, 4)
        >>> len(ResumingSampler(range(9), batch_size=4, num_replicas=1, rank=0))
        8
    """

    def __init__(self, dataset: Any, batch_size: int, **options: Any) -> None:
        super().__init__(dataset, **options)
        self.batch_size = batch_size
        self.start_iter = 0

    def set_start_iter(self, start_iter: int) -> None:
        """Skip the first ``start_iter`` batches of the next epochs."""
        self.start_iter = start_iter

    def __len__(self) -> int:
        alone = self.num_samples > self.batch_size > 1 == self.num_samples % self.batch_size
        return self.num_samples - alone

    def __iter__(self) -> Iterator[Any]:
        return islice(super().__iter__(), self.start_iter * self.batch_size, len(self))


def resuming_sampler(get_sampler: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the host's ``get_sampler``: replace ``DistributedSampler`` by a sampler that resumes."""

    def get(dataset: Any, dataset_config: Any, *args: Any, **kwargs: Any) -> Any:
        sampler = get_sampler(dataset, dataset_config, *args, **kwargs)
        if type(sampler) is not DistributedSampler:
            return sampler
        return ResumingSampler(dataset, batch_size=dataset_config["BATCHSIZE_PER_REPLICA"])

    return get


def kill_workers_at_exit() -> None:
    """Make this process kill its loader workers when it ends, before it waits for them.

    Otherwise Python sends SIGTERM, which the workers ignore, and waits forever.
    """
    Finalize(None, _kill_workers, exitpriority=100)  # repeated calls do no harm


def _kill_workers() -> None:
    for child in active_children():
        if child.daemon:
            child.kill()


NICE = 10  # not SCHED_IDLE: then other programs would take all processor time


def start_worker(then: Callable[[int], None], on_cpu: bool, worker: int) -> None:
    """Set up the process of a loader worker: ignore signals, because the rank saves on them.

    If the model runs on a CPU, the worker lowers its priority. Otherwise it could delay a thread of
    the model, and all other threads would wait for this thread.

    Args:
        then: the host's function, which takes the worker's number; called at the end.
        on_cpu: whether the model runs on a CPU.
        worker: the worker's number.
    """
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)
    if on_cpu:
        os.nice(NICE)
    then(worker)
