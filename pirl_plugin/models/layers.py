"""Features of any layer of a trunk: the pooled features, or a layer pooled to the paper's grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d

from pirl_plugin.models.resnet import ResNetTrunk
from pirl_plugin.models.trunks import AnyTrunk
from pirl_plugin.system.failures import check_name

LAST = "last"
"""The name of the pooled features of the last layer."""

_RESNET_LAYERS = ("conv1", "res2", "res3", "res4", "res5")
_GRID_DIMENSIONS = 9216  # of the features of a layer: "about 9,000" (Sec. 4.2, App. C)


class Layers(nn.Module):
    """A trunk that computes the features of several layers in one pass.

    Args:
        trunk: the network.
        names: of the layers, see :func:`layer_names`.

    Raises:
        ValueError: the trunk has no such layer.
    """

    def __init__(self, trunk: AnyTrunk, names: Sequence[str]) -> None:
        super().__init__()
        for name in names:
            check_name("--layer", name, layer_names(trunk))
        self.trunk = trunk
        self.names = list(names)

    def forward(self, images: Tensor) -> list[Tensor]:
        """Compute features.

        Args:
            images: ``(B, 3, H, W)`` float, normalised.

        Returns:
            For each layer ``(B, D)``: D is about 9,216, or the trunk's width for ``last``.
        """
        if self.names == [LAST]:
            return self.trunk(images)
        if isinstance(self.trunk, ResNetTrunk):
            keys = ["flatten" if name == LAST else name for name in self.names]
            by_name = dict(zip(self.names, self.trunk(images, keys), strict=True))
        else:
            net: Any = self.trunk.net
            final, stages = net.forward_intermediates(images)
            by_name = {_stage(number): stage for number, stage in enumerate(stages)}
            by_name[LAST] = net.forward_head(final, pre_logits=True)
        return [by_name[name] if name == LAST else on_grid(by_name[name]) for name in self.names]


def layer_names(trunk: AnyTrunk) -> list[str]:
    """Return the names of a trunk's layers, the pooled features at the end.

    Networks of timm have the stages that timm lists.

    Example:
        >>> layer_names(ResNetTrunk(10))
        ['conv1', 'res2', 'res3', 'res4', 'res5', 'last']
    """
    if isinstance(trunk, ResNetTrunk):
        return [*_RESNET_LAYERS, LAST]
    net: Any = trunk.net
    if not hasattr(net, "forward_intermediates"):
        return [LAST]
    return [*(_stage(number) for number in range(len(net.feature_info))), LAST]


def on_grid(features: Tensor) -> Tensor:
    """Pool a layer to the grid that gives about 9,000 dimensions, as in the paper's App. C.

    Args:
        features: floating ``(B, C, H, W)``.

    Returns:
        ``(B, C·G²)``, G at most H and W.

    Example:
        >>> import torch
        >>> [on_grid(torch.zeros(1, c, 14, 14)).shape[1] // c for c in (64, 256, 1024, 2048)]
        [144, 36, 9, 4]
    """
    channels, height, width = features.shape[1:]
    side = round((_GRID_DIMENSIONS / channels) ** 0.5)
    side = max(1, min(side, height, width))
    return adaptive_avg_pool2d(features, side).flatten(1)


def _stage(number: int) -> str:
    return f"stage{number + 1}"
