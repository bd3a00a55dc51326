"""The host's composition of YAML files, and what follows it for the runs of this plugin.

Files of both packages are composed. Then "is this a run of ours?" is decided. A run of ours is
checked, gets the values that files decide, and is recorded. Only then does the host change its
configuration, such as the learning rates.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hydra
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig, ListConfig, OmegaConf, open_dict

from pirl_plugin.images.columns import Columns
from pirl_plugin.images.names import DISK_FOLDER, TRANSFORMS
from pirl_plugin.system.failures import Refused, in_one_sentence
from pirl_plugin.system.host_config import config_root, literal, quoted
from pirl_plugin.system.processes import thread_limit, usable_cores
from pirl_plugin.views import IMAGENET_MEAN, IMAGENET_STD
from pirl_plugin.vissl.run.rank import follow_torchrun
from pirl_plugin.vissl.sections import COMPUTED, RECORD, is_ours, num_micro_batches

if TYPE_CHECKING:
    from vissl.config import AttrDict

_MOST_READERS = 16  # largest number of processes that read a batch on a CPU
# Keys with one path or, for the first two, a list of paths.
_PATH_KEYS = re.compile(
    r"config\.(DATA\.(TRAIN|TEST)\.DATA_PATHS|CHECKPOINT\.DIR|MODEL\.WEIGHTS_INIT\.PARAMS_FILE)"
)
# In YAML, a value that files decide. It is computed where a run starts, before its record, so that
# a run that continues compares it like all others.
_INTERPOLATION = re.compile(r"\$\{pirl_at_start:(\w+)(?:,(\d+))?\}")
# Its name → what it is, and its limit, or what replaces it.
_COMPUTED = {
    "half_of_images": ("half of the images", "at most {default}"),
    "size": ("size of the initial weights' images", "{default} if they do not say it"),
    "mean": ("mean of the initial weights' images", "ImageNet's if they do not say it"),
    "std": ("deviation of the initial weights' images", "ImageNet's if they do not say it"),
}
# Values that a user has written in Hydra's syntax: a string in quotes, a reference, nothing.
_SYNTAX = re.compile(r"""\s*(['"].*|\$\{.*|null|)\s*""", re.DOTALL)


class PIRLSearchPath(SearchPathPlugin):
    """Adds ``configs/`` of this plugin to Hydra's search path, after the host's folder."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Append the folder."""
        search_path.append(provider="pirl_plugin", path=f"file://{config_root()}")


def compose(overrides: list[str]) -> DictConfig:
    """Compose a configuration as the host does, but without importing torch."""
    Plugins.instance().register(PIRLSearchPath)
    for name, resolver in RESOLVERS.items():
        OmegaConf.register_new_resolver(name, resolver, replace=True)
    with in_one_sentence(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"(?s).*Hydra 1\.4")
        warnings.filterwarnings("ignore", category=UserWarning, module=r"hydra\..*")
        with hydra.initialize_config_module("vissl.config"):
            return hydra.compose("defaults", list(map(_readable_override, overrides)))


def check(composed: DictConfig, overrides: list[str]) -> DictConfig:
    """Check a run of ours, and fill in what files decide; report a mistake in one sentence."""
    from pirl_plugin.vissl.run.check import check_composed

    with in_one_sentence():
        if not is_ours(composed.config):
            OmegaConf.resolve(composed)  # otherwise the host keeps interpolations as text
            return composed
        follow_torchrun(composed)
        _expand_paths(composed.config)
        num_micro_batches(composed.config)  # refused before other values depend on it
        computed = _compute(composed)
        check_composed(composed, overrides)
        with open_dict(composed):
            composed.config[COMPUTED] = computed
    return composed


def compose_and_check(overrides: list[str], *, original: object) -> DictConfig:
    """Compose as the host does, with our configs, and check a run of ours."""
    return check(compose(overrides), overrides)


def record_and_convert(
    cfg: DictConfig,
    cmdline_args: list[str] | None = None,
    dump_config: bool = True,
    *,
    original: Callable[..., tuple[AttrDict, AttrDict]],
) -> tuple[AttrDict, AttrDict]:
    """Record a run of ours, let the host convert its configuration, and give it our task."""
    if not is_ours(cfg.config):
        return original(cfg, cmdline_args, dump_config=dump_config)
    from pirl_plugin.vissl.resume.record import record_before_host
    from pirl_plugin.vissl.run.check import check_slurm

    with in_one_sentence():
        record = record_before_host(cfg.config)
        # The run writes the file after its start.
        args, config = original(cfg, cmdline_args, dump_config=False)
        config[RECORD] = record
        task = config.TRAINER.TASK_NAME
        if task != "self_supervision_task":  # the host's FSDP and SDP choose another
            raise Refused(
                f"config.TRAINER.TASK_NAME = {task}: expected self_supervision_task; set "
                f"neither config.MODEL.FSDP_CONFIG.AUTO_SETUP_FSDP nor "
                f"config.MODEL.SHARDED_DDP_SETUP.USE_SDP"
            )
        config.TRAINER.TASK_NAME = "pirl_task"
        if config.SLURM.USE_SLURM:
            check_slurm(config)
    return args, config


def _readable_override(override: str) -> str:
    """Return an override whose path is in quotes.

    Hydra's syntax has no place for many characters of names, such as ``é``, and takes a comma for
    the end of a value. A path is alone, or in brackets, which VISSL's own configs need.
    """
    key, _, text = override.partition("=")
    path = re.sub(r"^\[(.*)\]$", r"\1", text.strip(), flags=re.DOTALL)
    is_in_brackets = path != text.strip()
    # One path, not a list of several: but a folder may be named "a,b".
    is_one = not is_in_brackets or "," not in path or os.path.exists(os.path.expanduser(path))
    if not _PATH_KEYS.fullmatch(key.lstrip("+")) or _SYNTAX.fullmatch(path) or not is_one:
        return override
    in_quotes = quoted(os.path.expanduser(path))
    return f"{key}=[{in_quotes}]" if is_in_brackets else f"{key}={in_quotes}"


def _expand_paths(config: DictConfig) -> None:
    """Replace ``~`` in paths; a single path becomes a list where the host expects a list.

    A folder may be named ``a${x}``: its path stays a text when references are resolved.
    """
    for split in ("TRAIN", "TEST"):
        paths = config.DATA[split].DATA_PATHS
        paths = [paths] if isinstance(paths, str) else list(paths or [])
        config.DATA[split].DATA_PATHS = list(map(_expanded, paths))
    folder = config.CHECKPOINT.DIR
    config.SLURM.LOG_FOLDER = _expanded(config.SLURM.LOG_FOLDER or f"{folder}/slurm")
    config.CHECKPOINT.DIR = _expanded(folder)
    weights = config.MODEL.WEIGHTS_INIT
    weights.PARAMS_FILE = _expanded(weights.PARAMS_FILE or "")


def _expanded(path: object) -> str:
    return literal(os.path.expanduser(str(path)))


def _compute(composed: DictConfig) -> dict[str, str]:
    """Compute the values of a configuration that files decide, and resolve all references.

    Args:
        composed: the whole configuration, with ``config``; changed in place.

    Returns:
        What was computed, in words → the value, as a text.

    Raises:
        Refused: the trunks of an ensemble have images of different kinds.
    """
    values: dict[str, Any] = {}
    computed: dict[str, str] = {}
    unresolved = str(OmegaConf.to_container(composed.config, resolve=False))
    for name, default in dict(_INTERPOLATION.findall(unresolved)).items():
        if name == "half_of_images":
            values[name] = _half_of_images(composed.config, int(default))
        else:
            values[name] = _of_weights(composed.config, name, default)
        computed[_COMPUTED[name][0]] = str(values[name])
    with open_dict(composed):
        composed[COMPUTED] = values
        OmegaConf.resolve(composed)  # otherwise the host keeps interpolations as text
        del composed[COMPUTED]
    return computed


def _half_of_images(config: DictConfig, most: int) -> int:
    """Return half of the number of training images, at most ``most``."""
    from pirl_plugin.images.folders import find_images
    from pirl_plugin.images.opening import open_source

    data = config.DATA.TRAIN
    try:
        (path,) = data.DATA_PATHS
        (source,) = data.DATA_SOURCES
        if source == DISK_FOLDER:  # more images do not change the result: stop counting
            count = sum(1 for _ in islice(find_images(path), 2 * most))
        else:
            columns = Columns(data.IMAGE_COLUMN, data.LABEL_COLUMN)
            count = len(open_source(path, source, columns=columns))
    except (OSError, ValueError):
        count = 0  # the checks of the run name the mistake
    return min(count // 2, most) or most


def _of_weights(config: DictConfig, name: str, default: str) -> Any:
    """Return ``size``, ``mean`` or ``std`` of the initial weights' images.

    Raises:
        Refused: the trunks of an ensemble have different values.
    """
    from pirl_plugin.checkpoints.load import read_preprocessing

    files = [config.MODEL.WEIGHTS_INIT.PARAMS_FILE]
    if config.MODEL.TRUNK.NAME == "pirl_ensemble":
        files = config.MODEL.TRUNK.PIRL_ENSEMBLE.PARAMS_FILES
    values = set()
    for file in files:
        is_file = bool(file) and os.path.isfile(file)  # not "", a placeholder or an address
        preprocessing = read_preprocessing(Path(file)) if is_file else None
        if preprocessing is not None:
            values.add(getattr(preprocessing, name))
    if len(values) > 1:
        raise Refused(
            f"config.MODEL.TRUNK.PIRL_ENSEMBLE.PARAMS_FILES = {list(files)}: expected trunks of "
            f"images with one {name}, found {sorted(values)}; measure each trunk by itself"
        )
    # Random weights, or a file that does not say it.
    value = values.pop() if values else {"mean": IMAGENET_MEAN, "std": IMAGENET_STD}.get(name)
    if name == "size":
        return int(default) if value is None else value
    return list(value or ())


def _epoch(epoch: int, of: int, *, _root_: DictConfig) -> float:
    """``${pirl_epoch:30,70}``: epoch 30 of 70, scaled to the run's number of epochs."""
    return float(_root_.config.OPTIMIZER.num_epochs * epoch / of)


def _trunk_width(*, _root_: DictConfig) -> int | None:
    """``${pirl_trunk_width:}``: the width of the pooled features of ``config.MODEL.TRUNK``."""
    from pirl_plugin.models.trunks import trunk_width

    return trunk_width(_root_.config.MODEL.TRUNK)


def _view_size(side: int, of: int, *, _root_: DictConfig) -> int:
    """``${pirl_view_size:64,224}``: 64 px for images of 224 px, in proportion for others."""
    image_size = _root_.config.DATA.TRAIN.VIEWS.get("image_size", of)
    return max(1, round(side * image_size / of))


def _times(first: int, second: int) -> int:
    """``${pirl_times:9,KEY}``: the product of two numbers, such as 9 and a width."""
    return int(first * second)


def _batch(images: int, *, _root_: DictConfig) -> int:
    """``${pirl_batch:32}``: 32 images times the number of micro-batches in config.TRAINER."""
    return images * num_micro_batches(_root_.config)


def _gpu_workers(most: int, *, _root_: DictConfig) -> int:
    """``${pirl_gpu_workers:12}``: a loader worker for each core of a process, at most 12."""
    processes = _root_.config.DISTRIBUTED.NUM_PROC_PER_NODE
    return max(1, min(usable_cores() // processes, most))


def _cpu_workers(*, _root_: DictConfig) -> int:
    """``${pirl_cpu_workers:}``: a loader worker for each thread of a process except one."""
    names = {transform.get("name") for transform in _root_.config.DATA.TRAIN.TRANSFORMS}
    if not names <= set(TRANSFORMS):  # other transforms' draws depend on the number of workers
        return 1
    processes = _root_.config.DISTRIBUTED.NUM_PROC_PER_NODE
    threads = min(usable_cores() // processes, thread_limit())
    readers = min(int(threads), _MOST_READERS)
    return max(readers - 1, 0)


def _at_start(name: str, default: int = 0, *, _root_: DictConfig) -> Any:
    """``${pirl_at_start:size,224}``: a value that files decide.

    :func:`_compute` computes it where a run starts. Before, it is a text, which says so.
    """
    computed = _root_.get(COMPUTED)
    if computed is None:
        return f"computed at the start: {', '.join(_COMPUTED[name]).format(default=default)}"
    return computed[name]


def _top_k(*, _root_: DictConfig) -> ListConfig:
    """``${pirl_top_k:}``: 1 and 5, for the top-1 and top-5; 1 alone of fewer than 5 classes."""
    return ListConfig([1, 5] if _root_.config.MODEL.HEAD.NUM_CLASSES >= 5 else [1])


def _test_resize(crop: int | str) -> int | str:
    """``${pirl_test_resize:224}``: the shorter side before a centre crop: 256 for 224.

    A text says that the size is computed at the start.
    """
    return crop if isinstance(crop, str) else round(crop * 8 / 7)


RESOLVERS: dict[str, Callable[..., Any]] = {
    "pirl_at_start": _at_start,
    "pirl_batch": _batch,
    "pirl_cpu_workers": _cpu_workers,
    "pirl_epoch": _epoch,
    "pirl_gpu_workers": _gpu_workers,
    "pirl_test_resize": _test_resize,
    "pirl_times": _times,
    "pirl_top_k": _top_k,
    "pirl_trunk_width": _trunk_width,
    "pirl_view_size": _view_size,
}
"""Functions that our YAML files call, by name."""
