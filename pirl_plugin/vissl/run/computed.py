"""Computed values in our YAML files: interpolations such as ``${pirl_batch:32}``.

They are replaced before a run is recorded, so a resumed run compares these values like any others.
"""

from __future__ import annotations

import os
from collections.abc import Callable
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


def _recorded(name: str, default: Any = None, *, _root_: DictConfig) -> Any:
    """``${pirl_recorded:size,224}``: a value that the initial weights record, or a default.

    Raises:
        Refused: the trunks in an ensemble record different values, or weights record that mean and
            standard deviation are unknown.
    """
    from pirl_plugin.checkpoints.network_record import read_network_config
    from pirl_plugin.models.network_config import UNKNOWN

    default = {"mean": IMAGENET_MEAN, "std": IMAGENET_STD}.get(name, default)
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
                    f"Set config.DATA.MEAN and config.DATA.STD to what they subtract and divide by."
                )
            values.append(getattr(recorded, name) if name in recorded.origins else default)
    if any(value != values[0] for value in values):
        raise Refused(
            f"config.MODEL.TRUNK.PIRL_ENSEMBLE.PARAMS_FILES: the trunks expect images with "
            f"different {name}, {values}. Evaluate each by itself."
        )
    value = values[0] if values else default
    return ListConfig(list(value)) if isinstance(value, tuple) else value


def _resize(crop_size: int) -> int:
    """``${pirl_resize:224}``: the shorter side before a crop; 256 for a crop of 224 px."""
    return round(crop_size * 8 / 7)


RESOLVERS: dict[str, Callable[..., Any]] = {
    "pirl_batch": _batch,
    "pirl_cpu_workers": _cpu_workers,
    "pirl_epoch": _epoch,
    "pirl_gpu_workers": _gpu_workers,
    "pirl_recorded": _recorded,
    "pirl_resize": _resize,
    "pirl_timm_width": _timm_width,
    "pirl_times": _times,
    "pirl_top_k": _top_k,
    "pirl_view_size": _view_size,
}
"""Functions for our YAML files, by name."""
