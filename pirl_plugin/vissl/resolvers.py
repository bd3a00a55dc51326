"""Values that our YAML files work out from others: ``${pirl_epoch:30,70}`` and the like."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pirl_plugin.utils.our_configs import MICRO_BATCHES, TRAIN_STEP

if TYPE_CHECKING:
    from omegaconf import DictConfig

_MOST_READERS = 16  # of a batch on a CPU


def register_resolvers() -> None:
    """Teach OmegaConf the functions of this file, as ``pirl_`` and their names."""
    from omegaconf import OmegaConf

    for resolver in (_epoch, _trunk_width, _times, _batch, _cpu_workers, _train_step):
        OmegaConf.register_new_resolver(f"pirl{resolver.__name__}", resolver, replace=True)


def _epoch(epoch: int, of: int, *, _root_: DictConfig) -> float:
    """``${pirl_epoch:30,70}``: epoch 30 of 70, in proportion to the run's number of epochs."""
    epochs = _root_.config.OPTIMIZER.num_epochs
    # What is no number is refused by the check of the key itself.
    return float(epochs * epoch / of) if isinstance(epochs, (int, float)) else float(epoch)


def _trunk_width(*, _root_: DictConfig) -> int | None:
    """``${pirl_trunk_width:}``: the width of the pooled features of ``config.MODEL.TRUNK``."""
    from pirl_plugin.models.trunks import trunk_width

    return trunk_width(_root_.config.MODEL.TRUNK)


def _times(one: int, other: int) -> int:
    """``${pirl_times:9,KEY}``: a width that is a multiple of another."""
    return int(one * other) if isinstance(other, int) else other


def _batch(images: int, *, _root_: DictConfig) -> int:
    """``${pirl_batch:32}``: micro-batches of 32 images, as many as config.TRAINER says."""
    from omegaconf import OmegaConf

    count = OmegaConf.select(_root_, f"config.{MICRO_BATCHES}")
    return images * count if type(count) is int and count > 0 else images


def _cpu_workers(processes: object, *, _root_: DictConfig) -> int:
    """``${pirl_cpu_workers:KEY}``: with the process itself, a reader for each of its threads.

    One under transforms that are not ours: there it prepares the next batches meanwhile.
    """
    import torch

    from pirl_plugin.vissl.patches.loading import draws_by_image

    if not draws_by_image(_root_.config.DATA.TRAIN.TRANSFORMS):
        return 1
    threads = torch.get_num_threads() // (processes if type(processes) is int else 1)
    return max(min(threads, _MOST_READERS) - 1, 0)


def _train_step(count: object) -> str:
    """``${pirl_train_step:KEY}``: the host's train step, or with micro-batches our own."""
    return TRAIN_STEP if type(count) is int and count > 1 else "standard_train_step"
