"""Position within an epoch: processed images, sampler and schedule."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from torch.utils.data import DistributedSampler

from pirl_plugin.checkpoints.read import section_of
from pirl_plugin.vissl.task import Task


def images_of_epoch(task: Task) -> int:
    """Return how many images all ranks process in an epoch, with those that pad its last batch."""
    num_steps = len(task.dataloaders["train"])
    return num_steps * int(task.datasets["train"].get_global_batchsize())


def samples_done(task: Task) -> int:
    """Return how many of the current epoch's images all ranks processed before the run stopped.

    This is 0, except in the first epoch of a resumed run. It is at most the size of an epoch, as
    the stopped run may have padded a larger last batch.
    """
    checkpoint = task.checkpoint
    if checkpoint is None:
        return 0
    finished = checkpoint["train_phase_idx"]
    # The task's index is `finished` while loading the checkpoint, and 1 more in the epoch.
    if task.train_phase_idx not in (finished, finished + 1):
        return 0
    return min(int(section_of(checkpoint).get("samples_done", 0)), images_of_epoch(task))


def steps_done(task: Task, phase: str) -> int:
    """Return how many steps the loader should skip in the current epoch."""
    if phase != "train":
        return 0
    return samples_done(task) // int(task.datasets["train"].get_global_batchsize())


def restore_schedule_position(task: Task) -> None:
    """Set a resumed run's image count, which is its position in the schedule.

    VISSL counts batches. With a different batch size than the stopped run's, the position would be
    wrong, and could pass the end.
    """
    task.num_updates = (task.train_phase_idx + 1) * images_of_epoch(task) + samples_done(task)


def begin_epoch(task: Task) -> None:
    """Set image count and learning rate, which may change once per epoch, even in mid-epoch.

    A resumed epoch with another batch size may have counted more images than there are.
    """
    task.num_updates = task.train_phase_idx * images_of_epoch(task)
    task.optimizer.on_epoch(task.where)
    task.num_updates += samples_done(task)


class ResumingSampler(DistributedSampler[Any]):
    """``DistributedSampler`` that skips the first ``start_iter`` batches; ``len`` counts them.

    VISSL's ``StatefulDistributedSampler`` would give each rank a fixed slice of the data. A final
    batch with a single image is dropped, because BatchNorm needs two values.

    Example:
        >>> sampler = ResumingSampler(range(10), batch_size=2, num_replicas=2, rank=0)
        >>> epoch = list(sampler)
        >>> sampler.set_start_iter(1)
        >>> list(sampler) == epoch[2:], len(sampler)
        (True, 4)
        >>> len(ResumingSampler(range(9), batch_size=4, num_replicas=1, rank=0))
        8
    """

    def __init__(self, dataset: Any, batch_size: int, **options: Any) -> None:
        super().__init__(dataset, **options)
        self.batch_size = batch_size
        self.start_iter = 0

    def set_start_iter(self, start_iter: int) -> None:
        """Skip the first ``start_iter`` batches of each following epoch."""
        self.start_iter = start_iter

    def __len__(self) -> int:
        last_batch = self.num_samples % self.batch_size
        if last_batch == 1 and self.num_samples > self.batch_size:
            return self.num_samples - 1
        return self.num_samples

    def __iter__(self) -> Iterator[Any]:
        return islice(super().__iter__(), self.start_iter * self.batch_size, len(self))


def resuming_sampler(dataset: Any, dataset_config: Any, *args: Any, **kwargs: Any) -> Any:
    """Return VISSL's sampler, with ``ResumingSampler`` instead of ``DistributedSampler``."""
    from vissl.data import get_sampler

    sampler = get_sampler(dataset, dataset_config, *args, **kwargs)
    if type(sampler) is not DistributedSampler:
        return sampler
    return ResumingSampler(dataset, batch_size=dataset_config["BATCHSIZE_PER_REPLICA"])
