"""The layout of VISSL's own checkpoints: where the trunk is, and what else must be there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pirl_plugin.checkpoints.read import read_checkpoint
from pirl_plugin.checkpoints.timm_trunk import TimmTensors, find_any_trunk
from pirl_plugin.checkpoints.trunk import Trunk
from pirl_plugin.models.timm_trunk import DESCRIPTION, describe

if TYPE_CHECKING:
    from torch import Tensor

BLOCKS = "_feature_blocks."  # what VISSL's ResNet and ours put before torchvision's names


def trunk_state(found: Trunk | TimmTensors) -> dict[str, Tensor]:
    """A trunk's tensors by the names of VISSL's ResNet, of ``pirl_resnet`` or of ``pirl_timm``."""
    if isinstance(found, TimmTensors):
        named = {f"net.{name}": tensor for name, tensor in found.tensors.items()}
        return {DESCRIPTION: describe(found.architecture, found.options), **named}
    return {BLOCKS + name: tensor for name, tensor in found.tensors.items()}


def vissl_checkpoint(trunk: Mapping[str, Tensor]) -> dict[str, object]:
    """A checkpoint that VISSL takes as ``config.MODEL.WEIGHTS_INIT.PARAMS_FILE``, without heads.

    Args:
        trunk: tensors by the trunk's own names, as of :func:`trunk_state`.
    """
    model = {"trunk": dict(trunk), "heads": {}}
    return {"type": "consolidated", "classy_state_dict": {"base_model": {"model": model}}}


def trunk_of_checkpoint(checkpoint: Mapping[str, object], name: str) -> dict[str, Tensor]:
    """The trunk's tensors in a checkpoint, by the names of VISSL's trunks.

    A trunk of any kind is taken from where VISSL keeps it; elsewhere a ResNet, or a network of
    timm, is looked for, such as in a plain state dictionary of torchvision.

    Args:
        checkpoint: nested dictionaries.
        name: what errors call the checkpoint.

    Raises:
        ValueError: it holds no trunk, several, or one that is not whole.
    """
    inside: object = checkpoint
    for key in ("classy_state_dict", "base_model", "model", "trunk"):
        inside = inside.get(key) if isinstance(inside, Mapping) else None
    if not isinstance(inside, Mapping) or not inside:
        return trunk_state(find_any_trunk(checkpoint, name))
    # Where a benchmark wrote it, the trunk is inside VISSL's feature extractor.
    return {full.removeprefix("base_model."): tensor for full, tensor in inside.items()}


def read_trunk_state(path: str | Path, trust_pickle: bool = False) -> dict[str, Tensor]:
    """As :func:`trunk_of_checkpoint`, of a file.

    Args:
        path: any file that the export reads.
        trust_pickle: run the code in the file if torch's safe loading refuses it.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it cannot be read, or holds no whole trunk.
    """
    return trunk_of_checkpoint(read_checkpoint(Path(path), trust_pickle), str(path))
