"""Networks of timm, an optional dependency: by their names, and those that our ResNets are."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import nn

    from pirl_plugin.checkpoints.trunk import Trunk


class TimmMissingError(ModuleNotFoundError, ValueError):
    """A network of timm is asked for, and timm is not installed."""


def create_network(architecture: str, options: Mapping[str, Any]) -> nn.Module:
    """Timm's network of a name, without a classifier, at random initialisation.

    Args:
        architecture: timm's name, such as ``vit_tiny_patch16_224``.
        options: keyword arguments of ``timm.create_model`` beside ``num_classes=0``.

    Raises:
        TimmMissingError: timm is not installed.
        ValueError: timm has no network of that name, or it does not take an option.
    """
    try:
        import timm
    except ModuleNotFoundError:
        raise TimmMissingError(
            f"the network '{architecture}' is timm's, and timm is not installed: pip install timm",
            name="timm",
        ) from None
    if not timm.is_model(architecture):
        near = difflib.get_close_matches(architecture, timm.list_models(), n=3, cutoff=0)
        raise ValueError(
            f"MODEL.TRUNK.PIRL_TIMM.NAME = {architecture}: expected a network of timm "
            f"{timm.__version__}; the nearest names are {', '.join(near)}"
        )
    try:
        net: nn.Module = timm.create_model(architecture, num_classes=0, **options)
    except (AssertionError, TypeError) as error:
        raise ValueError(
            f"MODEL.TRUNK.PIRL_TIMM.OPTIONS = {dict(options)}: expected keyword arguments that "
            f"timm's {architecture} takes; it said: {error}"
        ) from error
    return net


def network_width(net: Any) -> int:
    """Width of what the network's classifier would take."""
    return int(getattr(net, "head_hidden_size", None) or net.num_features)


def timm_resnet(found: Trunk) -> tuple[str, dict[str, object]]:
    """Timm's name and options of a ResNet trunk.

    timm's ResNets with a 7×7 stem put out 64 channels from it, whatever the width of their stages
    (``wide_resnet50_2`` is wider inside its blocks alone, which is not PIRL-c2x).

    Raises:
        ValueError: timm has no such network.
    """
    if found.width != 1 or found.small_stem:
        raise ValueError(
            f"timm has no {found.title}: its ResNets have a stem of 7×7 and 64 channels"
        )
    if found.depth == 10:
        return "resnet18", {"layers": [1, 1, 1, 1]}
    return f"resnet{found.depth}", {}
