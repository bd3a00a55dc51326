"""One ResNet, two ways to name its tensors: torchvision's (timm's too) and Detectron2's."""

from __future__ import annotations

import re

# A piece of torchvision's name, and of Detectron2's, where a batch norm is part of a convolution.
_STEMS = {"conv1": "stem.conv1", "bn1": "stem.conv1.norm"}
_PARTS = {
    **{f"conv{i}": f"conv{i}" for i in (1, 2, 3)},
    **{f"bn{i}": f"conv{i}.norm" for i in (1, 2, 3)},
    "downsample.0": "shortcut",
    "downsample.1": "shortcut.norm",
}


def to_detectron2(name: str) -> str:
    """Detectron2's name of a tensor of torchvision's ResNet.

    >>> to_detectron2("layer1.0.bn2.running_var")
    'res2.0.conv2.norm.running_var'

    Raises:
        ValueError: not a name of torchvision's ResNet.
    """
    if match := re.fullmatch(r"layer([1-4])\.(\d+)\.(.+)\.(\w+)", name):
        stage, block, part, leaf = match.groups()
        if part in _PARTS:
            return f"res{int(stage) + 1}.{block}.{_PARTS[part]}.{leaf}"
    stem, _, leaf = name.partition(".")
    if stem in _STEMS:
        return f"{_STEMS[stem]}.{leaf}"
    raise ValueError(f"'{name}' is not the name of a tensor of torchvision's ResNet trunk")


def to_torchvision(name: str) -> str:
    """The torchvision name of a tensor of Detectron2's ResNet; other names stay as they are.

    >>> to_torchvision("res5.0.shortcut.norm.weight")
    'layer4.0.downsample.1.weight'
    """
    prefix, _, leaf = name.rpartition(".")
    for ours, theirs in _STEMS.items():
        if prefix == theirs:
            return f"{ours}.{leaf}"
    if match := re.fullmatch(r"res([2-5])\.(\d+)\.(.+)", prefix):
        for ours, theirs in _PARTS.items():
            if match[3] == theirs:
                return f"layer{int(match[1]) - 1}.{match[2]}.{ours}.{leaf}"
    return name
