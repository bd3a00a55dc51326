"""The network that a configuration's trunk is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pirl_plugin.checkpoints.networks import Network, resnet, timm_network
from pirl_plugin.checkpoints.shapes import STAGES
from pirl_plugin.models.resnet import read_section
from pirl_plugin.models.timm_trunk import read_timm_section

if TYPE_CHECKING:
    from collections.abc import Mapping


def network_of_section(trunk: Mapping[str, Any]) -> Network | None:
    """The network of a ``MODEL.TRUNK`` section; None for trunks that are not known here.

    Raises:
        ValueError: the section of a trunk of this plugin has a key or value that it does not take.

    Example:
        >>> network_of_section({"NAME": "pirl_resnet", "PIRL_RESNET": {"DEPTH": 18}}).title
        'ResNet-18'
    """
    name = trunk["NAME"]
    if name == "resnet":
        depth, width = int(trunk["RESNETS"]["DEPTH"]), trunk["RESNETS"]["WIDTH_MULTIPLIER"]
        return resnet(depth, width, small_stem=False) if depth in STAGES else None
    if name == "pirl_resnet":
        return resnet(**read_section(trunk.get("PIRL_RESNET") or {}))
    if name == "pirl_timm":
        return timm_network(*read_timm_section(trunk.get("PIRL_TIMM") or {}))
    return None
