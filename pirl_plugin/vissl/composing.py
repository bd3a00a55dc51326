"""Answer a mistake in a run's configuration in one sentence, where the host composes it."""

from __future__ import annotations

import functools
import warnings
from typing import TYPE_CHECKING

from pirl_plugin.utils.our_configs import is_ours
from pirl_plugin.vissl.list_overrides import to_sections

if TYPE_CHECKING:
    from omegaconf import DictConfig
    from vissl.config import AttrDict

    from pirl_plugin.vissl.host_module import HostModule


def check_composing(module: HostModule) -> None:
    """Check what the host composes, and what it converts, before anything is written or started."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    compose, convert = module.compose_hydra_configuration, module.convert_to_attrdict

    def quietly(overrides: list[str]) -> DictConfig:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=r"(?s).*Hydra 1\.4")
            warnings.filterwarnings("ignore", category=UserWarning, module=r"hydra\..*")
            return compose(overrides)

    @functools.wraps(compose)
    def compose_hydra_configuration(overrides: list[str]) -> DictConfig:
        from hydra.errors import HydraException

        from pirl_plugin.vissl.checks.overrides import (
            check_overlays,
            check_rate,
            check_removed,
            check_top_level,
            refuse_overrides,
        )

        try:
            composed = quietly(to_sections(overrides, quietly))
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
        from pirl_plugin.vissl.checks.configuration import check_configuration, inferred

        # In a run of ours the file is written once the run has begun: one that is refused leaves
        # the folder of another as it was.
        dump = dump_config and not is_ours(cfg.config)
        if check_configuration(cfg):
            return inferred(convert, cfg, cmdline_args, dump_config=dump)
        return convert(cfg, cmdline_args, dump_config=dump)

    module.compose_hydra_configuration = compose_hydra_configuration
    module.convert_to_attrdict = convert_to_attrdict
