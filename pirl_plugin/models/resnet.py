"""torchvision's ResNet as a trunk of VISSL, from ResNet-10 up and down to small images."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from torch import Tensor, nn
from torchvision.models.resnet import BasicBlock, Bottleneck, ResNet

STAGES: dict[int, tuple[type[BasicBlock] | type[Bottleneck], list[int]]] = {
    10: (BasicBlock, [1, 1, 1, 1]),
    18: (BasicBlock, [2, 2, 2, 2]),
    34: (BasicBlock, [3, 4, 6, 3]),
    50: (Bottleneck, [3, 4, 6, 3]),
    101: (Bottleneck, [3, 4, 23, 3]),
    152: (Bottleneck, [3, 8, 36, 3]),
}

# VISSL's names of features -> the block that puts them out.
FEATURES = {
    "conv1": "conv1_relu",
    "res1": "maxpool",
    "res2": "layer1",
    "res3": "layer2",
    "res4": "layer3",
    "res5": "layer4",
    "res5avg": "avgpool",
    "flatten": "flatten",
}


class WideResNet(ResNet):
    """torchvision's ResNet with every stage ``width`` times as wide, as in PIRL-c2x (Sec. 3.2)."""

    def __init__(self, depth: int, width: float, small_stem: bool) -> None:
        block, stages = STAGES[depth]
        super().__init__(block, stages)
        self.inplanes = round(64 * width)
        self.conv1 = nn.Conv2d(3, self.inplanes, kernel_size=7, stride=2, padding=3, bias=False)
        if small_stem:  # as for CIFAR: images below about 64 pixels keep their resolution
            self.conv1 = nn.Conv2d(3, self.inplanes, kernel_size=3, padding=1, bias=False)
            self.maxpool = nn.Identity()  # type: ignore[assignment]
        self.bn1 = nn.BatchNorm2d(self.inplanes)
        for i, blocks in enumerate(stages):
            planes = round(64 * width) * 2**i
            stage = self._make_layer(block, planes, blocks, stride=1 if i == 0 else 2)
            setattr(self, f"layer{i + 1}", stage)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


class PIRLResNet(nn.Module):
    """The trunk ``pirl_resnet``; parameters are named as in VISSL's own ResNet trunk.

    Its section of the configuration, all keys optional::

        MODEL:
          TRUNK:
            NAME: pirl_resnet
            PIRL_RESNET: {DEPTH: 18, WIDTH_MULTIPLIER: 1, SMALL_STEM: false}

    Args:
        model_config: the host's ``MODEL`` section.
        model_name: the trunk's name; not used.

    Raises:
        ValueError: an unknown key or depth, or a width that is not positive.
    """

    def __init__(self, model_config: Any, model_name: str = "pirl_resnet") -> None:
        super().__init__()
        section = dict(model_config.TRUNK.get("PIRL_RESNET") or {})
        depth = section.pop("DEPTH", 18)
        width = section.pop("WIDTH_MULTIPLIER", 1)
        small_stem = section.pop("SMALL_STEM", False)
        if section:
            raise ValueError(
                f"MODEL.TRUNK.PIRL_RESNET has no key '{next(iter(section))}': expected DEPTH, "
                f"WIDTH_MULTIPLIER, SMALL_STEM"
            )
        if depth not in STAGES:
            raise ValueError(
                f"MODEL.TRUNK.PIRL_RESNET.DEPTH = {depth}: expected one of "
                f"{', '.join(map(str, STAGES))}"
            )
        if round(64 * width) < 1:
            raise ValueError(
                f"MODEL.TRUNK.PIRL_RESNET.WIDTH_MULTIPLIER = {width}: expected a factor above 0"
            )
        net = WideResNet(depth, width, small_stem)
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
        """Features of the asked-for layers.

        Args:
            images: ``(B, 3, H, W)`` float, normalised.
            out_feat_keys: names among ``conv1``, ``res1`` … ``res5``, ``res5avg``, ``flatten``;
                by default the last.

        Returns:
            One tensor a name, in the order of the names.

        Raises:
            ValueError: an unknown name.
        """
        keys = out_feat_keys or ["flatten"]
        for key in keys:
            if key not in FEATURES:
                raise ValueError(f"no feature '{key}': expected one of {', '.join(FEATURES)}")
        wanted = {FEATURES[key] for key in keys}
        found: dict[str, Tensor] = {}
        features = images
        for name, block in self._feature_blocks.items():
            features = block(features)
            if name in wanted:
                found[name] = features
            if len(found) == len(wanted):
                break
        return [found[FEATURES[key]] for key in keys]


def new_trunk(section: dict[str, Any]) -> PIRLResNet:
    """A randomly initialised trunk; ``section`` is ``MODEL.TRUNK.PIRL_RESNET``."""
    return PIRLResNet(SimpleNamespace(TRUNK={"PIRL_RESNET": section}))
