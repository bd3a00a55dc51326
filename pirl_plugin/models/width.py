"""The width of a trunk's pooled features, from its section of the configuration."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def trunk_width(trunk: Mapping[str, Any]) -> int | None:
    """Width of the pooled features of a ``MODEL.TRUNK`` section; None for trunks unknown here.

    Args:
        trunk: a mapping with ``NAME`` and the named trunk's own section.

    Raises:
        TimmMissingError: the trunk is timm's, and timm is not installed.
        ValueError: timm does not have the network.

    Example:
        >>> trunk_width({"NAME": "pirl_resnet", "PIRL_RESNET": {"DEPTH": 10}})
        512
    """
    name = trunk["NAME"]
    if name == "resnet":
        return int(2048 * trunk["RESNETS"]["WIDTH_MULTIPLIER"])
    if name == "pirl_resnet":
        from pirl_plugin.checkpoints.shapes import feature_width
        from pirl_plugin.models.resnet import read_section

        arguments = read_section(trunk.get("PIRL_RESNET") or {})
        return feature_width(arguments["depth"], arguments["width"])
    if name == "pirl_timm":
        from pirl_plugin.models.timm_trunk import read_timm_section

        architecture, options = read_timm_section(trunk.get("PIRL_TIMM") or {})
        return _timm_width(architecture, json.dumps(options))
    if name == "pirl_ensemble":
        section = trunk["PIRL_ENSEMBLE"]
        width = trunk_width({**trunk, "NAME": section["MEMBER"]})
        return None if width is None else width * len(section["PARAMS_FILES"])
    return None


@lru_cache(maxsize=16)
def _timm_width(architecture: str, options: str) -> int:
    import torch

    from pirl_plugin.checkpoints.timm_networks import create_network, network_width

    with torch.device("meta"):
        return network_width(create_network(architecture, json.loads(options)))
