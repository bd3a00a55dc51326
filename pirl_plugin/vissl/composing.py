"""The host's composition of YAML files: add our folder, our resolvers and our checks."""

from __future__ import annotations

import functools
import warnings
from typing import TYPE_CHECKING, Any

from pirl_plugin.failures import in_one_sentence
from pirl_plugin.processes import usable_cores
from pirl_plugin.settings import MICRO_BATCHES, config_root, is_ours
from pirl_plugin.vissl.launch import follow_torchrun

if TYPE_CHECKING:
    from hydra.core.config_search_path import ConfigSearchPath
    from omegaconf import DictConfig
    from vissl.config import AttrDict


_MOST_READERS = 16  # largest number of processes that read a batch on a CPU


@functools.cache
def _add_our_configs() -> None:
    """Append our folder to Hydra's search path, after the host's folder; register resolvers."""
    from hydra.core.plugins import Plugins
    from hydra.plugins.search_path_plugin import SearchPathPlugin
    from omegaconf import OmegaConf

    class PIRLSearchPath(SearchPathPlugin):
        """Adds ``configs/`` of this plugin to Hydra's search path."""

        def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
            search_path.append(provider="pirl_plugin", path=f"file://{config_root()}")

    Plugins.instance().register(PIRLSearchPath)
    for resolver in (_epoch, _trunk_width, _times, _batch, _cpu_workers, _half_of_images):
        OmegaConf.register_new_resolver(f"pirl{resolver.__name__}", resolver, replace=True)


def compose(overrides: list[str]) -> DictConfig:
    """Compose a configuration as the host does, but without importing torch."""
    import hydra

    _add_our_configs()
    with in_one_sentence(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"(?s).*Hydra 1\.4")
        warnings.filterwarnings("ignore", category=UserWarning, module=r"hydra\..*")
        with hydra.initialize_config_module("vissl.config"):
            return hydra.compose("defaults", overrides)


def check(composed: DictConfig, overrides: list[str]) -> DictConfig:
    """Check and resolve a composed configuration, and report a mistake in one sentence."""
    from omegaconf import OmegaConf

    from pirl_plugin.vissl.checks import check_composed

    with in_one_sentence():
        if is_ours(composed.config):
            follow_torchrun(composed)
        check_composed(composed, overrides)
        OmegaConf.resolve(composed)  # otherwise the host keeps interpolations as text
    return composed


def check_composing(module: Any) -> None:
    """Give the host's functions our configs and checks."""
    convert = module.convert_to_attrdict

    @functools.wraps(convert)
    def convert_to_attrdict(
        cfg: DictConfig, cmdline_args: list[str] | None = None, dump_config: bool = True
    ) -> tuple[AttrDict, AttrDict]:
        if not is_ours(cfg.config):
            return convert(cfg, cmdline_args, dump_config=dump_config)
        with in_one_sentence():  # the run writes the file after its start
            return convert(cfg, cmdline_args, dump_config=False)

    module.compose_hydra_configuration = lambda overrides: check(compose(overrides), overrides)
    module.convert_to_attrdict = convert_to_attrdict


def _epoch(epoch: int, of: int, *, _root_: DictConfig) -> float:
    """``${pirl_epoch:30,70}``: epoch 30 of 70, scaled to the run's number of epochs."""
    return float(_root_.config.OPTIMIZER.num_epochs * epoch / of)


def _trunk_width(*, _root_: DictConfig) -> int | None:
    """``${pirl_trunk_width:}``: the width of the pooled features of ``config.MODEL.TRUNK``."""
    from pirl_plugin.models.trunks import trunk_width

    return trunk_width(_root_.config.MODEL.TRUNK)


def _times(one: int, other: int) -> int:
    """``${pirl_times:9,KEY}``: the product of two numbers, such as 9 and a width."""
    return int(one * other)


def _batch(images: int, *, _root_: DictConfig) -> int:
    """``${pirl_batch:32}``: 32 images times the number of micro-batches in config.TRAINER."""
    from omegaconf import OmegaConf

    return images * int(OmegaConf.select(_root_, f"config.{MICRO_BATCHES}") or 1)


def _cpu_workers(processes: int, *, _root_: DictConfig) -> int:
    """``${pirl_cpu_workers:KEY}``: a loader worker for each thread of a process except one."""
    from pirl_plugin.images.names import TRANSFORMS

    names = {transform.get("name") for transform in _root_.config.DATA.TRAIN.TRANSFORMS}
    if not names <= set(TRANSFORMS):  # other transforms' draws depend on the number of workers
        return 1
    return max(min(usable_cores() // processes, _MOST_READERS) - 1, 0)


def _half_of_images(most: int, *, _root_: DictConfig) -> int:
    """``${pirl_half_of_images:4096}``: half of the number of images, at most 4096."""
    from itertools import islice

    from pirl_plugin.images.folders import find_images
    from pirl_plugin.images.names import DISK_FOLDER
    from pirl_plugin.images.sources import open_source

    data = _root_.config.DATA.TRAIN
    try:
        (path,), (source,) = data.DATA_PATHS, data.DATA_SOURCES
        if source == DISK_FOLDER:
            count = sum(1 for _ in islice(find_images(path), 2 * most))
        else:
            count = len(open_source(path, source))
    except (OSError, ValueError):
        count = 0  # the checks of the run name the mistake
    return min(count // 2, most) or most
