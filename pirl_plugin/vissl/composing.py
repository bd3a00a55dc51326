"""Answer a mistake in a run's configuration in one sentence, where the host composes it."""

from __future__ import annotations

import functools
import warnings
from typing import TYPE_CHECKING

from pirl_plugin.utils.our_configs import is_ours
from pirl_plugin.vissl.launch.failures import in_one_sentence
from pirl_plugin.vissl.list_overrides import to_sections

if TYPE_CHECKING:
    from omegaconf import DictConfig
    from vissl.config import AttrDict

    from pirl_plugin.vissl.host_module import HostModule


def check_composing(module: HostModule) -> None:
    """Check what the host composes, and what it converts, before anything is written or started."""
    from omegaconf import OmegaConf

    compose, convert = module.compose_hydra_configuration, module.convert_to_attrdict

    def quietly(overrides: list[str]) -> DictConfig:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=r"(?s).*Hydra 1\.4")
            warnings.filterwarnings("ignore", category=UserWarning, module=r"hydra\..*")
            return compose(overrides)

    @functools.wraps(compose)
    def compose_hydra_configuration(overrides: list[str]) -> DictConfig:
        from pirl_plugin.vissl.checks import check_composed

        with in_one_sentence():
            composed = quietly(to_sections(overrides, quietly))
            check_composed(composed, overrides)
            # The host keeps interpolations as text; ours say which sizes belong together.
            OmegaConf.resolve(composed)
        return composed

    @functools.wraps(convert)
    def convert_to_attrdict(
        cfg: DictConfig, cmdline_args: list[str] | None = None, dump_config: bool = True
    ) -> tuple[object, AttrDict]:
        ours = is_ours(cfg.config)
        if not ours:
            return convert(cfg, cmdline_args, dump_config=dump_config)
        # In a run of ours the file is written once the run has begun: one that is refused leaves
        # the folder of another as it was.
        with in_one_sentence():
            return convert(cfg, cmdline_args, dump_config=False)

    module.compose_hydra_configuration = compose_hydra_configuration
    module.convert_to_attrdict = convert_to_attrdict
