"""Load a trunk as a module from any checkpoint, and write it in VISSL's layout."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from pirl_plugin.checkpoints.read import read_checkpoint
from pirl_plugin.checkpoints.trunk import Trunk, find_any_trunk
from pirl_plugin.files import atomic_write
from pirl_plugin.models.resnet import ResNetTrunk
from pirl_plugin.models.timm_trunk import DESCRIPTION, TimmTrunk, describe
from pirl_plugin.models.trunks import AnyTrunk


def load_trunk(
    path: str | Path, trust_pickle: bool = False, at: str | None = None, timm: str | None = None
) -> AnyTrunk:
    """Load the trunk of any checkpoint that the export reads, in evaluation mode.

    Args:
        path: a checkpoint of VISSL or of torch, or a safetensors file.
        trust_pickle: run the code in the file if torch's safe loading refuses it.
        at: keys and prefix of the trunk, if the file holds several.
        timm: timm's name of the network, if the file does not have it.

    Returns:
        A module that takes normalised images ``(B, 3, H, W)`` and names of features.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file holds no complete trunk, safe loading refuses it, or its network is
            timm's and timm is not installed.
    """
    return trunk_in(read_checkpoint(Path(path), trust_pickle), path, at, timm)


def trunk_in(
    content: Mapping[str, object],
    path: str | Path,
    at: str | None = None,
    timm: str | None = None,
) -> AnyTrunk:
    """Load the trunk of a checkpoint that has been read: see :func:`load_trunk`."""
    found = find_any_trunk(content, str(path), at, timm)
    trunk: AnyTrunk
    if found.timm:
        trunk = TimmTrunk(found.timm, found.options)
    else:
        trunk = ResNetTrunk(found.depth, found.width, found.small_stem)
    trunk.load_state_dict(trunk_state(found), strict=False)  # batch norm's counters may be missing
    return trunk.eval()


def save_trunk(trunk: nn.Module, path: str | Path) -> None:
    """Write a trunk as a checkpoint that the host's benchmarks take as ``PARAMS_FILE``."""
    with atomic_write(path) as file:
        torch.save(vissl_checkpoint(trunk.state_dict()), file)


def trunk_state(found: Trunk) -> dict[str, Tensor]:
    """Return tensors by the names of VISSL's ResNet, of ``pirl_resnet`` or of ``pirl_timm``."""
    if found.timm:
        named = {f"net.{name}": tensor for name, tensor in found.tensors.items()}
        return {DESCRIPTION: describe(found.timm, found.options), **named}
    return {f"_feature_blocks.{name}": tensor for name, tensor in found.tensors.items()}


def vissl_checkpoint(trunk: Mapping[str, Tensor]) -> dict[str, object]:
    """Return a checkpoint that VISSL takes as ``config.MODEL.WEIGHTS_INIT.PARAMS_FILE``.

    Args:
        trunk: tensors by the trunk's own names, from :func:`trunk_state`.
    """
    model = {"trunk": dict(trunk), "heads": {}}
    return {"type": "consolidated", "classy_state_dict": {"base_model": {"model": model}}}


def trunk_of_checkpoint(checkpoint: Mapping[str, object], name: str) -> dict[str, Tensor]:
    """Return the trunk's tensors in a checkpoint, by the names of VISSL's trunks.

    In VISSL's layout, a trunk of any kind is found. In another layout, such as a state dictionary
    of torchvision, only a ResNet or a network of timm is found.

    Raises:
        ValueError: it holds no trunk, several trunks, or an incomplete one.
    """
    inside: object = checkpoint
    for key in ("classy_state_dict", "base_model", "model", "trunk"):
        inside = inside.get(key) if isinstance(inside, Mapping) else None
    if not isinstance(inside, Mapping) or not inside:
        return trunk_state(find_any_trunk(checkpoint, name))
    # In a benchmark's checkpoint, the trunk is inside VISSL's feature extractor.
    return {full.removeprefix("base_model."): tensor for full, tensor in inside.items()}
