"""The configuration of a training run, in its checkpoints and beside them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from pirl_plugin.checkpoints.read import open_checkpoint
from pirl_plugin.failures import Refused

SECTION = "pirl_plugin"
"""Key of this plugin's data in a checkpoint of the host, among the states of the host's hooks."""
RUN_CONFIG = "train_config.yaml"
_SIZES = ("image_size", "size", "crop_size_image")  # in our views, torchvision's, VISSL's PIRL


def section_of(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return this plugin's data in the content of a checkpoint; empty if there are none."""
    hooks = (content.get("classy_state_dict") or {}).get("hooks") or {}
    section: dict[str, Any] = hooks.get(SECTION) or {}
    return section


def run_config(checkpoint: Path) -> dict[str, Any] | None:
    """Return the configuration of a checkpoint's run, from the checkpoint or the file beside it.

    Returns:
        The configuration; None if neither has it.

    Raises:
        Refused: the file beside it is not a YAML mapping.
    """
    try:
        text = section_of(open_checkpoint(checkpoint)).get("config")
    except ValueError:  # another kind of file, or not a checkpoint
        text = None
    if text is not None:
        config: dict[str, Any] = json.loads(text)
        return config
    for folder in (checkpoint.parent, checkpoint.resolve().parent):  # of a link, of its target
        if (folder / RUN_CONFIG).is_file():
            return read_config(folder / RUN_CONFIG)
    return None


def read_config(file: Path) -> dict[str, Any]:
    """Read a configuration from a file that the host has written.

    Raises:
        Refused: the file is not a YAML mapping.
    """
    safe = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, where libyaml is
    config = yaml.load(file.read_text(), Loader=safe)
    if not isinstance(config, dict):
        raise Refused(f"{file}: expected the configuration of a run; remove or repair it")
    return config


def image_size_of(config: Mapping[str, Any] | None) -> int | None:
    """Return the side of training images, pixels; None if no transform has a size."""
    transforms = (config["DATA"]["TRAIN"]["TRANSFORMS"] or []) if config else []
    # The last size counts: a crop follows an earlier resizing.
    for transform in reversed(transforms):
        for key in _SIZES:
            if isinstance(transform.get(key), int):
                size: int = transform[key]
                return size
    return None
