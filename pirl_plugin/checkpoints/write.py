"""Save a trunk with its record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torchvision.models import ResNet

from pirl_plugin.checkpoints.classifier import CLASSIFIER, Classifier
from pirl_plugin.checkpoints.load import find_trunk
from pirl_plugin.checkpoints.network_record import NETWORK
from pirl_plugin.checkpoints.read import SECTION
from pirl_plugin.models.network_config import RESNET, NetworkConfig, network_config_of
from pirl_plugin.models.timm_trunk import TimmTrunk, check_description
from pirl_plugin.system.failures import Refused
from pirl_plugin.system.files import atomic_write


def save_trunk(trunk: nn.Module, path: str | Path, classifier: Classifier | None = None) -> None:
    """Save a trunk together with its record, for :func:`pirl_plugin.load_trunk` and all commands.

    VISSL reads the file as ``config.MODEL.WEIGHTS_INIT.PARAMS_FILE``. An existing file is replaced
    at the end, in one step.

    Args:
        trunk: any network. ``load_trunk`` and the commands can build a
            :class:`pirl_plugin.WideResNet`, an equal torchvision ResNet, and a timm network with
            plain options; ``load_trunk(path, network=module)`` loads any other into a module.
        path: the file, such as ``trunk.torch``.
        classifier: a classifier for the trunk's features; ``embed`` writes its predictions.

    Example:
        >>> import tempfile
        >>> from pirl_plugin import WideResNet, load_trunk
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_trunk(WideResNet(10, width=0.5), f"{folder}/trunk.torch")
        ...     load_trunk(f"{folder}/trunk.torch").network_config.name
        'ResNet-10 of width 0.5'
    """
    config = network_config_of(trunk)
    state = vissl_state(trunk)
    if not _can_be_built(trunk, config, state):
        name = type(trunk).__qualname__
        config = replace(config, architecture="", options={}, network_class=name)
    parts = {}
    if classifier is not None:
        # The classifier needs the images that it was fitted to, even if a default chose them.
        defaults = {"size", "mean", "std", "dtype"} - config.origins.keys()
        config = config.with_values("run", **{name: getattr(config, name) for name in defaults})
        parts = {CLASSIFIER: asdict(classifier)}
    content = {**vissl_checkpoint(state, config), **parts}
    with atomic_write(path) as file:
        torch.save(content, file)


def _can_be_built(trunk: nn.Module, config: NetworkConfig, state: Mapping[str, Tensor]) -> bool:
    """Return whether ``load_trunk`` can build a network from its record and tensors."""
    name = type(trunk).__name__
    try:
        if config.architecture not in ("", RESNET):
            check_description(config.architecture, config.options)
        if isinstance(trunk, TimmTrunk):
            return True
        built = find_trunk(state, config.architecture, config.options, name)
    except Refused:
        return False
    return _layers(trunk) == _layers(built)


def _layers(network: Any) -> list[str]:
    """Return a network's layers with their settings, except the classifier."""
    classifier = network.fc if isinstance(network, ResNet) else None
    if hasattr(network, "get_classifier"):  # timm's
        classifier = network.get_classifier()
    layers = []
    for layer in network.modules():
        has_parts = next(layer.children(), None) is not None
        if has_parts or layer is classifier or isinstance(layer, (nn.Flatten, nn.Identity)):
            continue
        layers.append(str(layer).replace("SyncBatchNorm", "BatchNorm2d"))
    return layers


def vissl_state(trunk: nn.Module) -> dict[str, Tensor]:
    """Return a network's tensors under VISSL's trunk names, which VISSL's benchmarks need."""
    prefix = "net."
    if isinstance(trunk, TimmTrunk):
        prefix = ""
    elif isinstance(trunk, ResNet):
        prefix = "_feature_blocks."
    return {f"{prefix}{name}": tensor for name, tensor in trunk.state_dict().items()}


def vissl_checkpoint(
    trunk: Mapping[str, Tensor], config: NetworkConfig | None = None
) -> dict[str, Any]:
    """Return a checkpoint that VISSL reads as ``config.MODEL.WEIGHTS_INIT.PARAMS_FILE``.

    Args:
        trunk: tensors under VISSL's trunk names.
        config: the network's record.
    """
    states: dict[str, Any] = {"base_model": {"model": {"trunk": dict(trunk), "heads": {}}}}
    if config is not None:
        states["hooks"] = {SECTION: {NETWORK: config.to_dict()}}
    return {"type": "consolidated", "classy_state_dict": states}
