"""torchvision's ResNet with stages of any width, and features from any layer."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torchvision.models.resnet import BasicBlock, Bottleneck, ResNet

from pirl_plugin.models.network_config import RESNET, NetworkConfig
from pirl_plugin.system.failures import check

# Depth -> block type, and number of blocks per stage.
STAGES: dict[int, tuple[type[BasicBlock] | type[Bottleneck], list[int]]] = {
    10: (BasicBlock, [1, 1, 1, 1]),
    18: (BasicBlock, [2, 2, 2, 2]),
    34: (BasicBlock, [3, 4, 6, 3]),
    50: (Bottleneck, [3, 4, 6, 3]),
    101: (Bottleneck, [3, 4, 23, 3]),
    152: (Bottleneck, [3, 8, 36, 3]),
}
LAST = "last"
"""Name of the last layer's pooled features."""
# Feature name, VISSL's or LAST -> the module that computes it.
FEATURES = {
    "conv1": "relu",
    "res1": "maxpool",
    "res2": "layer1",
    "res3": "layer2",
    "res4": "layer3",
    "res5": "layer4",
    "res5avg": "avgpool",
    "flatten": "fc",
    LAST: "fc",
}


class WideResNet(ResNet):
    """torchvision's ResNet with every stage ``width`` times as wide, as in PIRL-c2x (Sec. 3.2).

    It has no classifier: it maps images ``(B, C, H, W)`` to pooled features ``(B, D)``.
    :func:`pirl_plugin.save_trunk` saves it; :func:`pirl_plugin.export_checkpoint` then exports it
    to torchvision.

    Args:
        depth: 10, 18, 34, 50, 101 or 152.
        width: channel multiplier for all stages; 2 is PIRL-c2x.
        small_stem: use a 3×3 conv1 with stride 1 and no max-pooling, as for CIFAR.
        in_channels: number of image channels, C.

    Attributes:
        network_config: the arguments, and the images that the network expects.
        num_features: number of pooled features, D.
        layers: names of the layers that can be compared; the pooled features are the last.

    Raises:
        ValueError: there is no ResNet of this depth.

    Example:
        >>> import torch
        >>> WideResNet(10, 0.5, small_stem=True)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 256])
    """

    layers = ("conv1", "res2", "res3", "res4", "res5", LAST)

    def __init__(
        self, depth: int, width: float = 1, small_stem: bool = False, in_channels: int = 3
    ) -> None:
        check("depth", depth, depth in STAGES, f"one of {', '.join(map(str, STAGES))}")
        block, stages = STAGES[depth]
        # torchvision's layers have standard widths. Replace all that depend on the width.
        super().__init__(block, stages)
        self.inplanes = round(64 * width)
        # Seeded weights depend on every constructed layer, including the unused 7×7 stem.
        self.conv1 = nn.Conv2d(
            in_channels, self.inplanes, kernel_size=7, stride=2, padding=3, bias=False
        )
        if small_stem:  # keeps the resolution for images below about 64 pixels
            self.conv1 = nn.Conv2d(in_channels, self.inplanes, 3, padding=1, bias=False)
            self.maxpool = nn.Identity()
        self.bn1 = nn.BatchNorm2d(self.inplanes)
        for i, blocks in enumerate(stages):
            planes = round(64 * width) * 2**i
            stage = self._make_layer(block, planes, blocks, stride=1 if i == 0 else 2)
            setattr(self, f"layer{i + 1}", stage)
        self.fc = nn.Identity()
        self.num_features: int = self.inplanes  # the last block's number of channels
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        arguments = {"depth": depth, "width": width, "small_stem": small_stem}
        if in_channels != 3:
            arguments["in_channels"] = in_channels
        self.network_config = NetworkConfig(RESNET, arguments)

    def named_features(self, images: Tensor, names: Sequence[str]) -> list[Tensor]:
        """Compute features at several layers in one pass.

        Args:
            images: normalized, float ``(B, C, H, W)``.
            names: names among ``conv1``, ``res1`` to ``res5``, ``res5avg``, ``flatten`` and
                ``last``, which equals ``flatten``.

        Returns:
            One tensor per name, in the same order.

        Raises:
            KeyError: a name is unknown.
        """
        block_names = {FEATURES[name] for name in names}
        outputs = {}
        features = images
        for name, block in self.named_children():
            if name == "fc":
                features = features.flatten(1)
            features = block(features)
            if name in block_names:
                outputs[name] = features
            if len(outputs) == len(block_names):  # no feature needs the later blocks
                break
        return [outputs[FEATURES[name]] for name in names]
