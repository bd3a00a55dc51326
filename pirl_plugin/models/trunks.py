"""The width of a ``MODEL.TRUNK`` section's features, and untrained networks of the same kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from pirl_plugin.models.resnet import ResNetTrunk, feature_width, read_section
from pirl_plugin.models.timm_trunk import (
    TimmTrunk,
    create_network,
    network_width,
    read_timm_section,
    timm_pooling,
)

AnyTrunk = ResNetTrunk | TimmTrunk


def trunk_width(trunk: Mapping[str, Any]) -> int | None:
    """Return the width of the pooled features of a ``MODEL.TRUNK`` section.

    Args:
        trunk: a mapping with ``NAME`` and the section of this trunk.

    Returns:
        The width; None for an unknown trunk.

    Raises:
        ValueError: the section has a wrong key, or timm is not installed or lacks the network.

    Example:
        >>> trunk_width({"NAME": "pirl_resnet", "PIRL_RESNET": {"DEPTH": 10}})
        512
    """
    name = trunk["NAME"]
    if name == "resnet":
        return int(2048 * trunk["RESNETS"]["WIDTH_MULTIPLIER"])  # VISSL's begin with ResNet-50
    if name == "pirl_resnet":
        arguments = read_section(trunk.get("PIRL_RESNET") or {})
        return feature_width(arguments["depth"], arguments["width"])
    if name == "pirl_timm":
        # timm knows the width only of a network; on "meta" it has no memory.
        with torch.device("meta"):
            return network_width(create_network(*read_timm_section(trunk.get("PIRL_TIMM") or {})))
    if name == "pirl_ensemble":
        section = trunk["PIRL_ENSEMBLE"]
        width = trunk_width({**trunk, "NAME": section["MEMBER"]})
        return None if width is None else width * len(section["PARAMS_FILES"])
    return None


def describe_network(trunk: AnyTrunk) -> str:
    """Describe a network, with what its file may not tell: the strides of its stem, its pooling.

    Example:
        >>> describe_network(ResNetTrunk(10, 0.5, small_stem=True))
        'ResNet-10 of width 0.5, 3×3 stem: first layer 3×3, stride 1; avg pooling; 256 features'
    """
    first = next((layer for layer in trunk.modules() if isinstance(layer, nn.Conv2d)), None)
    parts = []
    if first is not None:
        height, width = first.kernel_size
        pooled = any(
            name.endswith("maxpool") and isinstance(layer, nn.MaxPool2d)
            for name, layer in trunk.named_modules()
        )
        stem = f"first layer {height}×{width}, stride {first.stride[0]}"
        parts.append(f"{stem}, max-pooling" if pooled else stem)
    if isinstance(trunk, ResNetTrunk):
        pooling = "avg"
        features = feature_width(int(trunk.arguments["depth"]), trunk.arguments["width"])
    else:
        pooling = timm_pooling(trunk.net)
        features = trunk.width
    if pooling:
        parts.append(f"{pooling} pooling")
    return f"{trunk.title}: {'; '.join(parts)}; {features} features"


def untrained(trunk: AnyTrunk) -> AnyTrunk:
    """Build a randomly initialised network of a trunk's kind, in evaluation mode.

    Its weights are always the same, and the global generator does not change.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = type(trunk)(**trunk.arguments)
    network.preprocessing = trunk.preprocessing
    return network.eval()
