"""torchvision's ResNet with stages of any width, and features with VISSL's names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torchvision.models.resnet import BasicBlock, Bottleneck, ResNet

from pirl_plugin.models.preprocessing import Preprocessing
from pirl_plugin.system.failures import Refused, check

# Depth -> kind of block, and the number of blocks in each of the four stages.
STAGES: dict[int, tuple[type[BasicBlock] | type[Bottleneck], list[int]]] = {
    10: (BasicBlock, [1, 1, 1, 1]),
    18: (BasicBlock, [2, 2, 2, 2]),
    34: (BasicBlock, [3, 4, 6, 3]),
    50: (Bottleneck, [3, 4, 6, 3]),
    101: (Bottleneck, [3, 4, 23, 3]),
    152: (Bottleneck, [3, 8, 36, 3]),
}
LAST = "last"
"""The name of the pooled features of the last layer."""
# Name of a feature, VISSL's or LAST -> the block that computes it.
FEATURES = {
    "conv1": "conv1_relu",
    "res1": "maxpool",
    "res2": "layer1",
    "res3": "layer2",
    "res4": "layer3",
    "res5": "layer4",
    "res5avg": "avgpool",
    "flatten": "flatten",
    LAST: "flatten",
}


def feature_width(depth: int, width: float) -> int:
    """Return the width of the pooled res5 features.

    Example:
        >>> feature_width(50, 2), feature_width(10, 0.5)
        (4096, 256)
    """
    return round(64 * width) * 8 * STAGES[depth][0].expansion


def resnet_title(depth: int, width: float, small_stem: bool) -> str:
    """Return a title of a network.

    Example:
        >>> resnet_title(10, 0.5, True)
        'ResNet-10 of width 0.5, 3×3 stem'
    """
    scaled = "" if width == 1 else f" of width {width:g}"
    return f"ResNet-{depth}{scaled}{', 3×3 stem' if small_stem else ''}"


class WideResNet(ResNet):
    """torchvision's ResNet with every stage ``width`` times as wide, as in PIRL-c2x (Sec. 3.2).

    It has no classifier: it maps images ``(B, 3, H, W)`` to pooled features ``(B, D)``. For
    torchvision, :func:`pirl_plugin.export_checkpoint` writes its state dictionary.

    Args:
        depth: 10, 18, 34, 50, 101 or 152.
        width: factor of the channels of each stage; 2 is PIRL-c2x.
        small_stem: conv1 is 3×3 with stride 1, without max-pooling, as for CIFAR.

    Raises:
        ValueError: there is no such depth, or no channel is left.

    Example:
        >>> import torch
        >>> WideResNet(10, 0.5, small_stem=True)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 256])
    """

    def __init__(self, depth: int, width: float = 1, small_stem: bool = False) -> None:
        check("depth", depth, depth in STAGES, f"one of {', '.join(map(str, STAGES))}")
        check("width", width, round(64 * width) > 0, "a number of at least 1/64")
        block, stages = STAGES[depth]
        # torchvision's layers have the usual widths: replace all that depend on the width.
        super().__init__(block, stages)
        self.inplanes = round(64 * width)
        self.conv1 = nn.Conv2d(3, self.inplanes, kernel_size=7, stride=2, padding=3, bias=False)
        if small_stem:  # keeps the resolution of images below about 64 pixels
            self.conv1 = nn.Conv2d(3, self.inplanes, kernel_size=3, padding=1, bias=False)
            self.maxpool = nn.Identity()
        self.bn1 = nn.BatchNorm2d(self.inplanes)
        for i, blocks in enumerate(stages):
            planes = round(64 * width) * 2**i
            stage = self._make_layer(block, planes, blocks, stride=1 if i == 0 else 2)
            setattr(self, f"layer{i + 1}", stage)
        self.fc = nn.Identity()
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


class ResNetTrunk(nn.Module):
    """A :class:`WideResNet` in blocks, with the parameter names of VISSL's own ResNet trunk.

    Args:
        depth: 10, 18, 34, 50, 101 or 152.
        width: factor of the channels of each stage.
        small_stem: see :class:`WideResNet`.

    Attributes:
        arguments: arguments of the constructor, to build another network of this kind.
        title: the network in words.
        num_features: number of the pooled features, D.
        pooling: kind of the last pooling.
        layers: names of the layers whose features are compared; the pooled features at the end.
        preprocessing: of the images in its training.
    """

    pooling = "avg"
    layers = ("conv1", "res2", "res3", "res4", "res5", LAST)
    preprocessing = Preprocessing()

    def __init__(self, depth: int = 18, width: float = 1, small_stem: bool = False) -> None:
        super().__init__()
        self.arguments: dict[str, Any] = {"depth": depth, "width": width, "small_stem": small_stem}
        self.title = resnet_title(depth, width, small_stem)
        net = WideResNet(depth, width, small_stem)
        self.num_features: int = net.inplanes  # torchvision's number of channels of the last block
        self._feature_blocks = nn.ModuleDict(
            {
                "conv1": net.conv1,
                "bn1": net.bn1,
                "conv1_relu": net.relu,
                "maxpool": net.maxpool,
                "layer1": net.layer1,
                "layer2": net.layer2,
                "layer3": net.layer3,
                "layer4": net.layer4,
                "avgpool": net.avgpool,
                "flatten": nn.Flatten(1),
            }
        )

    def forward(self, images: Tensor, out_feat_keys: list[str] | None = None) -> list[Tensor]:
        """Compute features.

        Args:
            images: ``(B, 3, H, W)`` float, normalised.
            out_feat_keys: names among ``conv1``, ``res1`` … ``res5``, ``res5avg``, ``flatten`` and
                ``last``, which are the same; by default ``flatten``.

        Returns:
            One tensor for each name, in the order of the names.

        Raises:
            ValueError: a name is unknown.
        """
        keys = out_feat_keys or ["flatten"]
        if unknown := set(keys) - set(FEATURES):
            raise Refused(f"{self.title} has no features {unknown}; it has {', '.join(FEATURES)}.")
        block_names = list(map(FEATURES.__getitem__, keys))
        outputs: dict[str, Tensor] = {}
        features = images
        for name, block in self._feature_blocks.items():
            features = block(features)
            if name in block_names:
                outputs[name] = features
            if len(outputs) == len(set(block_names)):  # no feature needs the later blocks
                break
        return list(map(outputs.__getitem__, block_names))


def read_section(section: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of :class:`ResNetTrunk` from a ``MODEL.TRUNK.PIRL_RESNET`` section.

    All its keys are optional.

    Raises:
        ValueError: a key or the depth is unknown, or the width is not positive.
    """
    arguments = {"DEPTH": 18, "WIDTH_MULTIPLIER": 1, "SMALL_STEM": False}
    unknown = section.keys() - arguments.keys()
    arguments.update(section)
    depth = arguments["DEPTH"]
    width = arguments["WIDTH_MULTIPLIER"]
    if unknown or depth not in STAGES or round(64 * width) < 1:
        raise Refused(
            f"MODEL.TRUNK.PIRL_RESNET = {dict(section)}: expected DEPTH among "
            f"{', '.join(map(str, STAGES))}, WIDTH_MULTIPLIER above 0, SMALL_STEM and no other "
            f"key; correct it"
        )
    return {"depth": depth, "width": width, "small_stem": arguments["SMALL_STEM"]}
