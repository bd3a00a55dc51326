"""Make ``config=pretrain/pirl/…`` resolve from the host's own script, from any folder."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pirl_plugin.utils.config_root import config_root
from pirl_plugin.utils.our_configs import MICRO_BATCHES, TRAIN_STEP, is_ours

if TYPE_CHECKING:
    from collections.abc import Callable

    from hydra.core.config_search_path import ConfigSearchPath
    from omegaconf import DictConfig
    from vissl.config import AttrDict

    from pirl_plugin.host.host_module import HostModule

__all__ = ["add_our_configs", "config_root"]

_MOST_READERS = 16  # of a batch on a CPU


def add_our_configs(module: HostModule) -> None:
    """Append our folder to Hydra's search path, after the host's, as a search-path plugin.

    The host's composing and converting functions also answer a mistake in one sentence, before
    anything is written or started.
    """
    import functools
    import warnings

    from hydra.core.plugins import Plugins
    from hydra.plugins.search_path_plugin import SearchPathPlugin
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    class PIRLSearchPath(SearchPathPlugin):
        """Adds ``configs/`` of this plugin to the folders that Hydra searches."""

        def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
            """Append our root; the host's and the current folder's configs go first."""
            search_path.append(provider="pirl_plugin", path=f"file://{config_root()}")

    Plugins.instance().register(PIRLSearchPath)
    OmegaConf.register_new_resolver("pirl_epoch", _epoch, replace=True)
    OmegaConf.register_new_resolver("pirl_trunk_width", _trunk_width, replace=True)
    OmegaConf.register_new_resolver("pirl_times", _times, replace=True)
    OmegaConf.register_new_resolver("pirl_batch", _batch, replace=True)
    OmegaConf.register_new_resolver("pirl_cpu_workers", _cpu_workers, replace=True)
    OmegaConf.register_new_resolver("pirl_train_step", _train_step, replace=True)
    compose, convert = module.compose_hydra_configuration, module.convert_to_attrdict

    def quietly(overrides: list[str]) -> DictConfig:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=r"(?s).*Hydra 1\.4")
            warnings.filterwarnings("ignore", category=UserWarning, module=r"hydra\..*")
            return compose(overrides)

    @functools.wraps(compose)
    def compose_hydra_configuration(overrides: list[str]) -> DictConfig:
        from hydra.errors import HydraException

        from pirl_plugin.host.checks.overrides import (
            check_overlays,
            check_rate,
            check_removed,
            check_top_level,
            refuse_overrides,
        )

        try:
            composed = quietly(_redirected(overrides, quietly))
            check_overlays(composed, overrides)
            check_rate(composed, overrides)
            if is_ours(composed.config):
                check_removed(overrides)
                check_top_level(composed, overrides)
            # The host keeps interpolations as text; ours say which sizes belong together.
            OmegaConf.resolve(composed)
        except (HydraException, OmegaConfBaseException) as error:
            refuse_overrides(error, overrides, quietly)
        return composed

    @functools.wraps(convert)
    def convert_to_attrdict(
        cfg: DictConfig, cmdline_args: list[str] | None = None, dump_config: bool = True
    ) -> tuple[object, AttrDict]:
        from pirl_plugin.host.checks.configuration import check_configuration, inferred

        # In a run of ours the file is written once the run has begun: one that is refused leaves
        # the folder of another as it was.
        dump = dump_config and not is_ours(cfg.config)
        if check_configuration(cfg):
            return inferred(convert, cfg, cmdline_args, dump_config=dump)
        return convert(cfg, cmdline_args, dump_config=dump)

    module.compose_hydra_configuration = compose_hydra_configuration
    module.convert_to_attrdict = convert_to_attrdict


def _epoch(epoch: int, of: int, *, _root_: DictConfig) -> float:
    """``${pirl_epoch:30,70}``: epoch 30 of 70, in proportion to the run's number of epochs."""
    epochs = _root_.config.OPTIMIZER.num_epochs
    # What is no number is refused by the check of the key itself.
    return float(epochs * epoch / of) if isinstance(epochs, (int, float)) else float(epoch)


def _trunk_width(*, _root_: DictConfig) -> int | None:
    """``${pirl_trunk_width:}``: the width of the pooled features of ``config.MODEL.TRUNK``."""
    from pirl_plugin.models.width import trunk_width

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

    from pirl_plugin.data.vissl_loading import draws_by_image

    if not draws_by_image(_root_.config.DATA.TRAIN.TRANSFORMS):
        return 1
    threads = torch.get_num_threads() // (processes if type(processes) is int else 1)
    return max(min(threads, _MOST_READERS) - 1, 0)


def _train_step(count: object) -> str:
    """``${pirl_train_step:KEY}``: the host's train step, or with micro-batches our own."""
    return TRAIN_STEP if type(count) is int and count > 1 else "standard_train_step"


_LISTS = r"config\.(?:DATA\.TRAIN\.TRANSFORMS|MODEL\.HEAD\.PARAMS)"


def _redirected(overrides: list[str], compose: Callable[[list[str]], DictConfig]) -> list[str]:
    """Overrides of an entry of a list, as those of the section that the entry refers to.

    ``TRANSFORMS.0.KEY=…`` becomes ``VIEWS.KEY=…``, and ``HEAD.PARAMS.0.1.KEY=…`` becomes
    ``HEAD.G.1.KEY=…``; the first of each is how earlier versions named it.
    """
    from omegaconf import OmegaConf

    entry = re.compile(rf"^([+~]*)({_LISTS})(?:\.(\d+)|\[(\d+)\])\.")
    others = [override for override in overrides if not entry.match(override)]
    if len(others) == len(overrides):
        return overrides
    composed = compose(others)

    def renamed(override: str) -> str:
        found = entry.match(override)
        if found is None:
            return override
        entries, index = OmegaConf.select(composed, found[2]), int(found[3] or found[4])
        if not entries or index >= len(entries) or not OmegaConf.is_interpolation(entries, index):
            return override
        section = entries._get_node(index)._value().strip("${}")
        return f"{found[1]}{section}.{override[found.end() :]}"

    return [renamed(override) for override in overrides]
