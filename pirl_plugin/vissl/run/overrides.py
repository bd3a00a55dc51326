"""Overrides as users write them: unquoted paths, and typos answered with the nearest name."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path

import hydra
from hydra.errors import ConfigCompositionException, MissingConfigException
from omegaconf import DictConfig, OmegaConf

from pirl_plugin.system.comparison import flat, is_below
from pirl_plugin.system.failures import Refused
from pirl_plugin.vissl.host_config import config_root, quoted

# Keys for one path or, for the first two, a list of paths.
_PATH_KEYS = re.compile(
    r"config\.(DATA\.(TRAIN|TEST)\.DATA_PATHS|CHECKPOINT\.DIR|MODEL\.WEIGHTS_INIT\.PARAMS_FILE)"
)
# Values in Hydra's own syntax: a quoted string, an interpolation, nothing.
_SYNTAX = re.compile(r"""\s*(['"].*|\$\{.*|null|)\s*""", re.DOTALL)


def compose_overrides(overrides: list[str]) -> DictConfig:
    """Compose VISSL's defaults with overrides, inside Hydra's initialization.

    Raises:
        Refused: an override has no value, or names a nonexistent config, group or key.
    """
    for override in overrides:
        if "=" not in override and not override.startswith("~"):
            raise Refused(f"{override}: expected config=NAME or KEY=VALUE{_config_like(override)}")
    try:
        composed = hydra.compose("defaults", list(map(readable_override, overrides)))
    except MissingConfigException as error:
        name = str(error.missing_cfg_file)
        hint = f". Choose one of {', '.join(error.options)}." if error.options else ""
        raise Refused(f"There is no {name}.yaml{hint or _config_like(name)}") from error
    except ConfigCompositionException as error:
        _refuse_unknown_key(overrides)
        raise error
    for key in map(str, composed):
        if "/" in key:  # Hydra treats an unknown group as a key
            groups = {str(path.parent) for path in _our_configs() if path.parts[1] == "pirl"}
            names = ", ".join(sorted(groups - {"config/pirl/base"}))
            raise Refused(f"+{key}: there is no such group. Choose one of {names}.")
    return composed


def _our_configs() -> Iterator[Path]:
    """Yield each of this plugin's configs and overlays as a path below ``configs/``."""
    for file in config_root().glob("config/**/*.yaml"):
        yield file.relative_to(config_root())


def replaced_configs() -> list[Path]:
    """Return the files in the current folder that replace this plugin's configs."""
    if not Path("configs").is_dir() or Path("configs").samefile(config_root()):
        return []
    return sorted(path for path in map(Path("configs").joinpath, _our_configs()) if path.is_file())


def _config_like(name: str) -> str:
    """Return a hint that names this plugin's most similar config, or ""."""
    names = {}
    for path in _our_configs():
        if path.parts[1] in ("pretrain", "benchmark"):
            names[path.stem] = path.relative_to("config").with_suffix("").as_posix()
    similar = get_close_matches(Path(name).name, names, n=1)
    return f". Did you mean config={names[similar[0]]}?" if similar else ""


def _refuse_unknown_key(overrides: list[str]) -> None:
    """Raise ``Refused`` for the first override with a nonexistent key."""
    configs = []
    keys = []
    for override in overrides:
        key, _, _ = override.partition("=")
        if key == "config" or "/" in key:
            configs.append(override)
        elif not key.startswith("+"):
            keys.append(key.lstrip("~"))
    existing = flat(OmegaConf.to_container(hydra.compose("defaults", configs), resolve=False))
    for key in keys:
        if not any(is_below(name, [key]) for name in existing):
            similar = get_close_matches(key, existing, n=1)
            hint = f"Did you mean {similar[0]}? " if similar else ""
            raise Refused(f"{key}: there is no such key. {hint}To add a key, write +{key}=VALUE.")


def readable_override(override: str) -> str:
    """Return an override with the path quoted.

    Hydra's syntax excludes many characters in file names, such as ``é``, and a comma ends a value.
    The path stands alone, or in brackets, which VISSL's own configs need.
    """
    key, _, text = override.partition("=")
    path = re.sub(r"^\[(.*)\]$", r"\1", text.strip(), flags=re.DOTALL)
    is_in_brackets = path != text.strip()
    # A single path, not a list; but a folder may be named "a,b".
    is_one = not is_in_brackets or "," not in path or os.path.exists(os.path.expanduser(path))
    if not _PATH_KEYS.fullmatch(key.lstrip("+")) or _SYNTAX.fullmatch(path) or not is_one:
        return override
    in_quotes = quoted(os.path.expanduser(path))
    return f"{key}=[{in_quotes}]" if is_in_brackets else f"{key}={in_quotes}"
