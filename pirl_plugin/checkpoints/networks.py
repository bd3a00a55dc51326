"""What network a trunk is, in words, and the overrides that give a configuration that network."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pirl_plugin.checkpoints.shapes import is_bottleneck
from pirl_plugin.checkpoints.timm_trunk import TimmTensors, find_any_trunk, timm_title
from pirl_plugin.checkpoints.trunk import Trunk, resnet_title
from pirl_plugin.models.resnet import STAGES, read_section
from pirl_plugin.models.timm_trunk import read_timm_section
from pirl_plugin.settings import config_root

_TRUNK = "config.MODEL.TRUNK"


@dataclass(frozen=True)
class Network:
    """A trunk without its weights.

    Attributes:
        title: such as ``ResNet-10 of width 0.5``.
        overlay: name of its overlays in ``+config/pirl/linear`` and other groups; None if none.
        options: overrides beside the overlay.
    """

    title: str
    overlay: str | None = None
    options: tuple[str, ...] = ()

    @property
    def with_article(self) -> str:
        """``a ResNet-18``, but ``timm's resnet50``."""
        return self.title if self.overlay == "timm" else f"a {self.title}"

    def overrides(self, group: str) -> list[str] | None:
        """The overlay of a group and what belongs beside it; None where the group has none.

        Example:
            >>> resnet(10, 0.5, False).overrides("linear")
            ['+config/pirl/linear=resnet10']
        """
        file = config_root() / "config" / "pirl" / group / f"{self.overlay}.yaml"
        return [f"+config/pirl/{group}={self.overlay}", *self.options] if file.is_file() else None


def resnet(depth: int, width: float, small_stem: bool) -> Network:
    """The network of a ResNet's depth, width and stem."""
    name: str | None = None
    sections: list[str] = []
    if is_bottleneck(depth):
        if width in (1, 2, 4) and not small_stem:
            name = "resnet50" if width == 1 else f"resnet50_c{width:g}x"
            sections = [f"RESNETS.DEPTH={depth}"] if depth != 50 else []
    elif width == 1 or (depth, width) == (10, 0.5):
        name = "resnet18" if width == 1 else "resnet10"
        sections = [f"PIRL_RESNET.DEPTH={depth}"] if width == 1 and depth != 18 else []
        sections += ["PIRL_RESNET.SMALL_STEM=True"] if small_stem else []
    options = tuple(f"{_TRUNK}.{section}" for section in sections)
    return Network(resnet_title(depth, width, small_stem), name, options)


def timm_network(architecture: str, options: Mapping[str, object]) -> Network:
    """A network of timm by its name and the keyword arguments of ``timm.create_model``."""
    given = (
        f"+{_TRUNK}.PIRL_TIMM.OPTIONS.{name}={json.dumps(value, separators=(',', ':'))}"
        for name, value in options.items()
    )
    named = (f"{_TRUNK}.PIRL_TIMM.NAME={architecture}", *given)
    return Network(timm_title(architecture, options), "timm", named)


def network_of(found: Trunk | TimmTensors) -> Network:
    """The network of a trunk that was found."""
    if isinstance(found, TimmTensors):
        return timm_network(found.architecture, found.options)
    return resnet(found.depth, found.width, found.small_stem)


def network_in(checkpoint: Mapping[str, object]) -> Network | None:
    """The network of a checkpoint's trunk; None where there is none, or not one alone."""
    try:
        return network_of(find_any_trunk(checkpoint, "the checkpoint"))
    except ValueError:  # also timm's, where it is not installed
        return None


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
