"""Computed values: interpolations such as ``${pirl_batch:32}``, and keys that are null.

When a run starts, null keys in :data:`COMPUTED` are replaced before the run is recorded, so a
resumed run compares these values like any others.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf

from pirl_plugin.images.names import TRANSFORMS
from pirl_plugin.system.cores import usable_cores
from pirl_plugin.system.failures import Refused
from pirl_plugin.views import IMAGENET_MEAN, IMAGENET_STD
from pirl_plugin.vissl.run.group import torchrun_local_rank
from pirl_plugin.vissl.sections import num_micro_batches

_MOST_READERS = 16  # maximum number of processes that read a batch on a CPU
_DEFAULT_SIZE = 224  # pixels


def _epoch(epoch: int, of: int, *, _root_: DictConfig) -> float:
    """``${pirl_epoch:30,70}``: epoch 30 of 70, scaled to the run's number of epochs."""
    return float(_root_.config.OPTIMIZER.num_epochs * epoch / of)


def _timm_width(*, _root_: DictConfig) -> int:
    """``${pirl_timm_width:}``: pooled feature width for ``MODEL.TRUNK.PIRL_TIMM``."""
    import torch

    from pirl_plugin.models.timm_trunk import TimmTrunk

    section: Any = OmegaConf.to_container(_root_.config.MODEL.TRUNK.PIRL_TIMM)
    with torch.device("meta"):  # without allocating weights
        return TimmTrunk(section["NAME"], section.get("OPTIONS")).num_features


def _view_size(side: int, of: int, *, _root_: DictConfig) -> int:
    """``${pirl_view_size:64,224}``: 64 px for 224-px images, scaled in proportion for others."""
    image_size = _root_.config.DATA.TRAIN.VIEWS.get("image_size", of)
    return max(1, round(side * image_size / of))


def _times(first: int, second: int) -> int:
    """``${pirl_times:9,KEY}``: product of two numbers, such as 9 and a width."""
    return int(first * second)


def _batch(images: int, *, _root_: DictConfig) -> int:
    """``${pirl_batch:32}``: 32 images times the number of micro-batches."""
    return images * num_micro_batches(_root_.config)


def _gpu_workers(most: int, *, _root_: DictConfig) -> int:
    """``${pirl_gpu_workers:12}``: one loader worker per core available to a process, at most 12."""
    processes = _root_.config.DISTRIBUTED.NUM_PROC_PER_NODE
    return max(1, min(usable_cores() // processes, most))


def _cpu_workers(*, _root_: DictConfig) -> int:
    """``${pirl_cpu_workers:}``: one loader worker per thread in a process, less one."""
    names = {transform.get("name") for transform in _root_.config.DATA.TRAIN.TRANSFORMS}
    if not names <= set(TRANSFORMS):  # with other transforms, draws depend on the number of workers
        return 1
    processes = _root_.config.DISTRIBUTED.NUM_PROC_PER_NODE
    threads = usable_cores() // processes
    limit, _, _ = os.environ.get("OMP_NUM_THREADS", "").partition(",")
    if limit.isdecimal() and torchrun_local_rank() is None:  # torchrun sets it to 1
        threads = min(threads, int(limit))
    return max(min(threads, _MOST_READERS) - 1, 0)


def _top_k(*, _root_: DictConfig) -> ListConfig:
    """``${pirl_top_k:}``: 1 and 5, for top-1 and top-5; 1 alone below 5 classes."""
    return ListConfig([1, 5] if _root_.config.MODEL.HEAD.NUM_CLASSES >= 5 else [1])


RESOLVERS: dict[str, Callable[..., Any]] = {
    "pirl_batch": _batch,
    "pirl_cpu_workers": _cpu_workers,
    "pirl_epoch": _epoch,
    "pirl_gpu_workers": _gpu_workers,
    "pirl_timm_width": _timm_width,
    "pirl_times": _times,
    "pirl_top_k": _top_k,
    "pirl_view_size": _view_size,
}
"""Functions for our YAML files, by name."""


def _recorded(name: str, default: Any, *, _root_: DictConfig) -> Any:
    """Return a value that the initial weights record, or a default.

    Raises:
        Refused: the trunks in an ensemble record different values, or weights record that mean and
            standard deviation are unknown.
    """
    from pirl_plugin.checkpoints.network_record import read_network_config
    from pirl_plugin.models.network_config import UNKNOWN

    model = _root_.config.MODEL
    files = [model.WEIGHTS_INIT.PARAMS_FILE]
    if model.TRUNK.NAME == "pirl_ensemble":
        files = model.TRUNK.PIRL_ENSEMBLE.PARAMS_FILES
    values = []
    for file in files:
        if os.path.isfile(file or ""):  # not "", a placeholder or an address
            recorded = read_network_config(Path(file))
            if name in ("mean", "std") and recorded.statistics == UNKNOWN:
                raise Refused(
                    f"{file} was trained on float views with unknown mean and standard deviation. "
                    f"Set config.DATA.MEAN and config.DATA.STD, as the views subtract and divide."
                )
            values.append(getattr(recorded, name) if name in recorded.origins else default)
    if any(value != values[0] for value in values):
        raise Refused(
            f"config.MODEL.TRUNK.PIRL_ENSEMBLE.PARAMS_FILES: the trunks expect images with "
            f"different {name}, {values}. Evaluate each by itself."
        )
    return values[0] if values else default


def _size(*, _root_: DictConfig) -> int:
    default = _root_.config.DATA.TRAIN.get("DEFAULT_SIZE") or _DEFAULT_SIZE
    return int(_recorded("size", default, _root_=_root_))


def _square(*, _root_: DictConfig) -> list[int]:
    return 2 * [_size(_root_=_root_)]


def _test_resize(*, _root_: DictConfig) -> int:
    return round(_root_.config.DATA.TEST.CROP_SIZE * 8 / 7)


COMPUTED: dict[str, Callable[..., Any]] = {
    "DATA.MEAN": partial(_recorded, "mean", IMAGENET_MEAN),
    "DATA.STD": partial(_recorded, "std", IMAGENET_STD),
    "DATA.TRAIN.NODATA": partial(_recorded, "nodata", None),
    "DATA.NUM_DATALOADER_WORKERS": partial(_gpu_workers, 12),
    "DATA.TRAIN.BATCHSIZE_PER_REPLICA": partial(_batch, 32),
    "DATA.TRAIN.VIEWS.patches_crop_size": partial(_view_size, 255, 224),
    "DATA.TRAIN.VIEWS.patch_size": partial(_view_size, 64, 224),
    "DATA.TRAIN.RESIZE": _square,
    "DATA.TRAIN.CROP_SIZE": _size,
    "DATA.TEST.RESIZE": _test_resize,  # after DATA.TRAIN.CROP_SIZE, which TEST.CROP_SIZE refers to
}
"""Keys in ``config`` and the functions that compute their values, in this order."""


def fill_in(composed: DictConfig) -> None:
    """Replace null values for the keys in :data:`COMPUTED`, in place.

    Args:
        composed: the complete configuration, with ``config``.
    """
    for key, compute in COMPUTED.items():
        section_key, _, name = key.rpartition(".")
        section = OmegaConf.select(composed.config, section_key)
        if OmegaConf.is_dict(section) and name in section and section[name] is None:
            section[name] = compute(_root_=composed)
