"""A file's record of its network: name, options, and the images that the network expects."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pirl_plugin.checkpoints.read import read_checkpoint, section_of
from pirl_plugin.checkpoints.tensors import flatten
from pirl_plugin.method.settings import unpack_state
from pirl_plugin.models.network_config import RESNET, NetworkConfig
from pirl_plugin.models.timm_trunk import check_description
from pirl_plugin.system.failures import Refused

NETWORK = "network"
"""Key for the network's record in this plugin's data."""
TIMM_FILE = "model.safetensors"
"""Weights in a folder that timm writes, beside ``config.json``."""


def read_network_config(path: Path, content: Mapping[str, Any] | None = None) -> NetworkConfig:
    """Return a file's record of the network, without reading the tensors.

    The record is in the file, if this package wrote it, or in timm's ``config.json`` beside it.

    Args:
        path: the file.
        content: the file's content, if it has been read.

    Returns:
        The record, or the defaults if there is none.

    Raises:
        Refused: the file or the record is damaged, or the record's network is unsafe to build.
    """
    file = path.with_name("config.json")
    is_of_timm = path.name == TIMM_FILE and file.is_file()
    if not is_of_timm:
        file = path
        content = content or read_checkpoint(path, mapped=True)
    try:
        record = _read_timm_record(file) if is_of_timm else _own_record(content or {})
        if record is None:
            return NetworkConfig()
        architecture = record["architecture"]
        if architecture not in ("", RESNET):
            architecture, options = check_description(architecture, record["options"])
            record = {**record, "architecture": architecture, "options": options}
        return NetworkConfig.from_dict(record, file.name if is_of_timm else "file")
    except Refused as error:
        raise Refused(f"{file}: {error}") from error
    except Exception as error:  # a damaged record can raise anything
        raise Refused(f"{file}: the network record is damaged ({error!r}).") from error


def _own_record(content: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the record in this package's data, or in the state of a :class:`pirl_plugin.PIRL`.

    Lightning and accelerate save this state.
    """
    if NETWORK in section_of(content):
        record: Mapping[str, Any] = section_of(content)[NETWORK]
        return record
    for name, tensor in flatten(content).items():
        if name.endswith("_extra_state"):
            with suppress(Refused):  # another program's, or an average
                images: Mapping[str, Any] | None = unpack_state(tensor).get("images")
                if images:
                    return images
    return None


def _read_timm_record(file: Path) -> Mapping[str, Any] | None:
    """Read timm's ``config.json``, and return a record with this package's keys.

    Other programs, such as transformers, write files with this name too; for them, return None.
    """
    content = json.loads(file.read_text())
    if "pretrained_cfg" not in content:
        return None
    images = content["pretrained_cfg"]
    size = (images.get("input_size") or [None])[-1]  # (C, H, W)
    options = content.get("model_args") or {}
    return {**content, **images, "options": options, "size": size}
