"""Compose YAML files as VISSL does, and check, complete and record runs with this plugin.

Files from both packages are composed. For a run with this plugin, the configuration is checked
and recorded. Only then does VISSL modify it, for example by scaling the learning rates.
"""

from __future__ import annotations

import glob
import os
import re
import warnings
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

import hydra
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.plugins import Plugins
from hydra.errors import ConfigCompositionException, MissingConfigException
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import InterpolationResolutionError

from pirl_plugin.images.names import DISK_FILELIST
from pirl_plugin.system.comparison import flat, is_below
from pirl_plugin.system.console import warn, warn_once
from pirl_plugin.system.failures import MissingFile, Refused, in_one_sentence
from pirl_plugin.system.text import truncate
from pirl_plugin.vissl.host_config import config_root, literal, quoted
from pirl_plugin.vissl.own_parts import register_own_transforms
from pirl_plugin.vissl.run.computed import RESOLVERS
from pirl_plugin.vissl.run.group import follow_torchrun, torchrun_local_rank
from pirl_plugin.vissl.sections import RECORD, is_ours

if TYPE_CHECKING:
    from vissl.config import AttrDict


_LISTED = "pirl-plugin configs lists all configs and groups."
# Keys for one path or, for the first two, a list of paths; and for a regular expression.
_PATH_KEYS = re.compile(
    r"config\.(DATA\.(TRAIN|TEST)\.DATA_PATHS|CHECKPOINT\.DIR|MODEL\.WEIGHTS_INIT\.PARAMS_FILE"
    r"|DATA\.(TRAIN|TEST)\.PATTERN)"
)
# Keys that may be added: VISSL passes them on, or they are checked where this plugin uses them.
_OPEN = (
    "config.CHECKPOINT.PIRL",
    "config.DATA.RGB",
    "config.DATA.TRAIN.PHOTOMETRIC",
    "config.DATA.TRAIN.TRANSFORMS",
    "config.DATA.TRAIN.VIEWS",
    "config.HOOKS.PIRL_INPUT",
    "config.HOOKS.PIRL_MONITOR",
    "config.HOOKS.PIRL_RUN",
    "config.LOSS.pirl_loss",
    "config.MODEL.TRUNK.EFFICIENT_NETS",
    "config.MODEL.TRUNK.PIRL_ENSEMBLE",
    "config.MODEL.TRUNK.PIRL_RESNET",
    "config.MODEL.TRUNK.PIRL_TIMM",
    "config.MODEL.TRUNK.REGNET",
    "config.SLURM.ADDITIONAL_PARAMETERS",
    "config.TRAINER.PIRL_MICRO_BATCHES",
)
# Values in Hydra's own syntax: a quoted string, an interpolation, nothing.
_SYNTAX = re.compile(r"""\s*(['"].*|\$\{.*|null|)\s*""", re.DOTALL)


class PIRLSearchPath(SearchPathPlugin):
    """Adds this plugin's ``configs/`` to Hydra's search path, after VISSL's folder.

    An override ``hydra.searchpath`` would do so too, but Hydra uses only the first one, and users
    pass their own.
    """

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Append the folder."""
        search_path.append("pirl_plugin", f"file://{config_root()}")


def compose(overrides: list[str]) -> DictConfig:
    """Compose a configuration as VISSL does, but without importing torch.

    Raises:
        SystemExit: an override has no value, or names a nonexistent config, group or key.
    """
    Plugins.instance().register(PIRLSearchPath)
    for name, resolver in RESOLVERS.items():
        OmegaConf.register_new_resolver(name, resolver, replace=True)
    with in_one_sentence(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"(?s).*Hydra 1\.4")
        warnings.filterwarnings("ignore", category=UserWarning, module=r"hydra\..*")
        _warn_about_replaced_files()
        for override in overrides:
            if "=" not in override and not override.startswith("~"):
                raise Refused(f"{override}: expected config=NAME or KEY=VALUE. {_LISTED}")
        if not any(override.startswith("config=") for override in overrides):
            raise Refused(f"Pass config=NAME first. {_LISTED}")
        try:
            with hydra.initialize_config_module("vissl.config"):
                composed = hydra.compose("defaults", list(map(readable_override, overrides)))
        except MissingConfigException as error:
            names = f"Choose one of {', '.join(error.options)}." if error.options else _LISTED
            raise Refused(f"There is no {error.missing_cfg_file}.yaml. {names}") from error
        except ConfigCompositionException:
            for message in _unknown_keys(overrides, r"~?config\."):
                raise Refused(message) from None
            raise
        for key in map(str, composed):
            if "/" in key:  # Hydra treats an unknown group as a key
                raise Refused(f"+{key}: there is no such group. {_LISTED}")
    return composed


def _warn_about_replaced_files() -> None:
    """Warn if files in the current folder replace ours; VISSL's search path begins there."""
    first = Path("configs")
    root = config_root()
    names = [str(path.relative_to(first)) for path in sorted(first.rglob("*.yaml"))]
    replaced = [name for name in names if (root / name).is_file()]
    if replaced and not first.samefile(root):
        warn_once(f"Files in {first.absolute()} replace pirl_plugin's: {truncate(replaced)}")


def readable_override(override: str) -> str:
    """Return an override with the path or the regular expression quoted.

    Hydra's syntax excludes many characters in file names, such as ``é``, and a comma ends a value.
    The path stands alone, or in brackets, which VISSL's own configs need.
    """
    key, _, text = override.partition("=")
    path = text.strip()
    if not key.endswith(".PATTERN"):  # an expression has brackets of its own
        path = re.sub(r"^\[(.*)\]$", r"\1", path, flags=re.DOTALL)
    is_in_brackets = path != text.strip()
    # A single path, not a list; but a folder may be named "a,b".
    is_one = not is_in_brackets or "," not in path or os.path.exists(os.path.expanduser(path))
    if not _PATH_KEYS.fullmatch(key.lstrip("+")) or _SYNTAX.fullmatch(path) or not is_one:
        return override
    in_quotes = quoted(path)
    return f"{key}=[{in_quotes}]" if is_in_brackets else f"{key}={in_quotes}"


def _unknown_keys(overrides: list[str], pattern: str) -> Iterator[str]:
    """Yield a sentence for each override of a key that neither VISSL nor this plugin has.

    Args:
        overrides: overrides from the command line.
        pattern: beginning of the overrides to look at.
    """
    suspects = [override for override in overrides if re.match(pattern, override)]
    if not suspects:
        return
    others = [override for override in overrides if not re.match(r"[+~]*config\.", override)]
    known = flat(OmegaConf.to_container(compose(others)))
    for override in suspects:
        key = override.lstrip("+~").partition("=")[0]
        if is_below(key, _OPEN) or any(is_below(name, [key]) for name in known):
            continue
        (nearest,) = get_close_matches(key, known, n=1, cutoff=0)
        yield f"{override}: neither VISSL nor this plugin has this key. The nearest is {nearest}."


def check_paths(config: DictConfig) -> None:
    """Refuse wrong paths to training images, before torch is imported.

    SLURM's nodes may have other files than this machine.
    """
    if config.SLURM.USE_SLURM:
        return
    data = config.DATA.TRAIN
    for path in [data.DATA_PATHS] if isinstance(data.DATA_PATHS, str) else data.DATA_PATHS or []:
        file = os.path.expanduser(path)
        if not os.path.exists(file) and not glob.glob(file):
            raise MissingFile(f"config.DATA.TRAIN.DATA_PATHS: {path} does not exist.")
        if os.path.isdir(file) and DISK_FILELIST in data.DATA_SOURCES:
            raise Refused(
                f"config.DATA.TRAIN.DATA_PATHS: {path} is a folder, not a list of images. Omit "
                f"+config/pirl/datasets=filelist, or pass a list."
            )


def complete(composed: DictConfig, overrides: list[str]) -> DictConfig:
    """Complete and validate a run with this plugin; report mistakes in one sentence."""
    from pirl_plugin.vissl.run.validation import validate

    with in_one_sentence():
        is_our_run = is_ours(composed.config)
        if is_our_run:
            follow_torchrun(composed)
            _expand_paths(composed.config)
        try:
            OmegaConf.resolve(composed)  # VISSL would keep interpolations as text
        except InterpolationResolutionError as error:
            raise error.__context__ or error from None  # what one of our functions raised
        if is_our_run:
            register_own_transforms(composed.config)
            validate(composed, overrides)
        if is_our_run and not torchrun_local_rank():
            for message in _unknown_keys(overrides, r"\++config\."):
                warn(message)
    return composed


def compose_completely(overrides: list[str], *, original: object) -> DictConfig:
    """Compose as VISSL does, including our configs, and check runs with this plugin."""
    return complete(compose(overrides), overrides)


def convert_and_record(
    cfg: DictConfig,
    cmdline_args: list[str] | None = None,
    dump_config: bool = True,
    *,
    original: Callable[..., tuple[AttrDict, AttrDict]],
) -> tuple[AttrDict, AttrDict]:
    """Record a run with this plugin, let VISSL convert the configuration, and set our task."""
    if not is_ours(cfg.config):
        return original(cfg, cmdline_args, dump_config=dump_config)
    from pirl_plugin.vissl.resume.record import make_record

    with in_one_sentence():
        record = make_record(cfg.config)
        # The run writes the file itself, later.
        args, config = original(cfg, cmdline_args, dump_config=False)
        config[RECORD] = record
        task = config.TRAINER.TASK_NAME
        if task != "self_supervision_task":  # FSDP and SDP select another one
            raise Refused(
                f"config.TRAINER.TASK_NAME = {task}: PIRL trains with self_supervision_task only. "
                f"Set neither config.MODEL.FSDP_CONFIG.AUTO_SETUP_FSDP nor "
                f"config.MODEL.SHARDED_DDP_SETUP.USE_SDP."
            )
        config.TRAINER.TASK_NAME = "pirl_task"
    return args, config


def _expand_paths(config: DictConfig) -> None:
    """Expand ``~`` in paths, and wrap a single path in a list where VISSL expects one.

    A folder may be named ``a${x}``, which is not an interpolation.
    """
    for split in ("TRAIN", "TEST"):
        paths = config.DATA[split].DATA_PATHS
        paths = [paths] if isinstance(paths, str) else list(paths or [])
        config.DATA[split].DATA_PATHS = [_expanded(path) for path in paths]
    folder = config.CHECKPOINT.DIR
    config.SLURM.LOG_FOLDER = _expanded(config.SLURM.LOG_FOLDER or f"{folder}/slurm")
    config.CHECKPOINT.DIR = _expanded(folder or "")
    weights = config.MODEL.WEIGHTS_INIT
    weights.PARAMS_FILE = _expanded(weights.PARAMS_FILE or "")


def _expanded(path: object) -> str:
    return literal(os.path.expanduser(str(path)))
