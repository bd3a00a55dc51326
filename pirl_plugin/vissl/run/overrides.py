"""Overrides as users write them: unquoted paths, and typos answered with the nearest name."""

from __future__ import annotations

import os
import re

import hydra
from hydra.errors import MissingConfigException
from omegaconf import DictConfig

from pirl_plugin.system.failures import Refused
from pirl_plugin.vissl.host_config import quoted

# Keys for one path or, for the first two, a list of paths.
_PATH_KEYS = re.compile(
    r"config\.(DATA\.(TRAIN|TEST)\.DATA_PATHS|CHECKPOINT\.DIR|MODEL\.WEIGHTS_INIT\.PARAMS_FILE)"
)
# Values in Hydra's own syntax: a quoted string, an interpolation, nothing.
_SYNTAX = re.compile(r"""\s*(['"].*|\$\{.*|null|)\s*""", re.DOTALL)


def compose_overrides(overrides: list[str]) -> DictConfig:
    """Compose VISSL's defaults with overrides, inside Hydra's initialization.

    Raises:
        Refused: an override names a config or a group that does not exist.
    """
    names = "To list the names, run pirl-plugin configs."
    try:
        composed = hydra.compose("defaults", list(map(readable_override, overrides)))
    except MissingConfigException as error:
        raise Refused(f"There is no {error.missing_cfg_file}.yaml. {names}") from error
    for key in map(str, composed):
        if "/" in key:  # Hydra takes an unknown group for a key
            raise Refused(f"+{key}: there is no such group. {names}")
    return composed


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
