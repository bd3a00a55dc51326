"""Networks in VISSL's configuration: sections in ``MODEL.TRUNK``, and a run's images."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from pirl_plugin.models.network_config import NetworkConfig
from pirl_plugin.models.timm_trunk import TimmTrunk
from pirl_plugin.models.trunks import network_config_of

_TRANSFORM_SIZES = ("image_size", "size", "crop_size_image")  # ours, torchvision's, VISSL's PIRL


def timm_arguments(section: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return a network's name and options from a ``MODEL.TRUNK.PIRL_TIMM`` section."""
    options = json.dumps(section.get("OPTIONS") or {})  # to plain dictionaries, for checkpoints
    return str(section["NAME"]), json.loads(options)


def timm_width(section: Mapping[str, Any]) -> int:
    """Return the pooled feature width for a ``MODEL.TRUNK.PIRL_TIMM`` section.

    Raises:
        ValueError: timm is not installed, or lacks the network.
    """
    with torch.device("meta"):  # without allocating weights
        return TimmTrunk(*timm_arguments(section)).num_features


def size_of_transforms(transforms: Sequence[Mapping[str, Any]]) -> int | None:
    """Return the image size after a configuration's ``TRANSFORMS``, in pixels.

    Returns:
        The size; None if no transform sets one.

    Example:
        >>> size_of_transforms([{"name": "Resize", "size": 73}, {"name": "CenterCrop", "size": 64}])
        64
    """
    for transform in reversed(transforms):  # a crop follows resizing
        for key in _TRANSFORM_SIZES:
            size = transform.get(key)
            if isinstance(size, Sequence) and len(set(size)) == 1:
                size = size[0]
            if isinstance(size, int):
                return size
    return None


def run_network(model: nn.Module, config: Mapping[str, Any]) -> NetworkConfig:
    """Return the record of a run's network, including the images that the run trains on.

    Pre-training reads ``HOOKS.PIRL_INPUT``. Benchmarks and VISSL's own approaches use a
    ``Normalize`` transform.

    Args:
        model: VISSL's model.
        config: the run's configuration.
    """
    data = config.get("DATA") or {}
    transforms = (data.get("TRAIN") or {}).get("TRANSFORMS") or []
    section = (config.get("HOOKS") or {}).get("PIRL_INPUT") or {}
    # The first with values: our hook, a transform, VISSL's defaults.
    mean = section.get("mean")
    std = section.get("std")
    for transform in transforms:
        if transform.get("name") == "Normalize":
            mean = mean or transform.get("mean")
            std = std or transform.get("std")
    return network_config_of(model).with_values(
        "run",
        size=size_of_transforms(transforms),
        mean=mean or data.get("MEAN") or None,
        std=std or data.get("STD") or None,
        dtype=data.get("DTYPE"),
    )
