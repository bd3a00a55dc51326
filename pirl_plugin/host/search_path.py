"""Make ``config=pretrain/pirl/…`` resolve from the host's own script, from any folder."""

from __future__ import annotations

from typing import Any

from pirl_plugin.places import config_root

__all__ = ["add_our_configs", "config_root"]


def add_our_configs(module: Any) -> None:
    """Append our folder to Hydra's search path, after the host's, as a search-path plugin.

    The composing function also names a config that does not exist in one sentence.
    """
    import warnings

    from hydra.core.plugins import Plugins
    from hydra.plugins.search_path_plugin import SearchPathPlugin
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    class PIRLSearchPath(SearchPathPlugin):
        """Adds ``configs/`` of this plugin to the places Hydra looks in."""

        def manipulate_search_path(self, search_path: Any) -> None:
            """Append our root; the host's and the current folder's configs go first."""
            search_path.append(provider="pirl_plugin", path=f"file://{config_root()}")

    Plugins.instance().register(PIRLSearchPath)
    OmegaConf.register_new_resolver("pirl_epoch", _epoch, replace=True)
    compose = module.compose_hydra_configuration

    def compose_hydra_configuration(overrides: list[str]) -> Any:
        from hydra.errors import HydraException

        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=r"(?s).*Hydra 1\.4")
            warnings.filterwarnings("ignore", category=UserWarning, module=r"hydra\..*")
            try:
                composed = compose(overrides)
                # The host keeps interpolations as text; ours say which sizes belong together.
                OmegaConf.resolve(composed)
                return composed
            except (HydraException, OmegaConfBaseException) as error:
                raise SystemExit(_one_sentence(error, overrides)) from None

    module.compose_hydra_configuration = compose_hydra_configuration


def _epoch(epoch: int, of: int, *, _root_: Any) -> float:
    """``${pirl_epoch:30,70}``: epoch 30 of 70, in proportion to the run's number of epochs."""
    return float(_root_.config.OPTIMIZER.num_epochs * epoch / of)


def _one_sentence(error: Exception, overrides: list[str]) -> str:
    """What was asked for, what Hydra said of it and, for an unknown config, what there is."""
    from hydra.errors import MissingConfigException

    first_line = str(error).strip().splitlines()[0].rstrip(".")
    sentence = f"pirl_plugin: cannot compose {' '.join(overrides)}: {first_line}"
    if type(error).__name__ == "OverrideParseException":
        sentence += "; a value with other than letters, digits and ./_-+ needs quotes: KEY=\"'…'\""
    if isinstance(error, MissingConfigException):
        ours = sorted(
            path.relative_to(config_root() / "config").with_suffix("").as_posix()
            for path in (config_root() / "config").rglob("*.yaml")
            if path.parent.name != "base"
        )
        sentence += (
            f"; this plugin has {', '.join(n for n in ours if not n.startswith('pirl/'))}, and for "
            f"+config/pirl/… {', '.join(n.removeprefix('pirl/') for n in ours if n[:5] == 'pirl/')}"
        )
    return sentence
