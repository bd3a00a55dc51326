"""Networks from timm in VISSL's configuration: the section ``MODEL.TRUNK.PIRL_TIMM``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch

from pirl_plugin.models.timm_trunk import TimmTrunk


def timm_arguments(section: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return a network's name and options from a ``MODEL.TRUNK.PIRL_TIMM`` section."""
    options = json.dumps(section.get("OPTIONS") or {})  # to plain dictionaries, for checkpoints
    return str(section["NAME"]), json.loads(options)


def timm_width(section: Mapping[str, Any]) -> int:
    """Return the pooled feature width for a ``MODEL.TRUNK.PIRL_TIMM`` section.

    Raises:
        ValueError: timm is not installed, or lacks the network.
    """
    with torch.device("meta"):  # without allocating weights
        return TimmTrunk(*timm_arguments(section)).num_features
