"""Which network of timm a ResNet of ours is."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pirl_plugin.checkpoints.trunk import Trunk


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
