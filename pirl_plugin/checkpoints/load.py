"""A trunk as a module, from a checkpoint of any kind, and one written for the host's benchmarks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from pirl_plugin.checkpoints.compare import compare
from pirl_plugin.checkpoints.read import read_checkpoint
from pirl_plugin.checkpoints.timm_trunk import TimmTensors, find_any_trunk
from pirl_plugin.checkpoints.vissl_layout import trunk_state, vissl_checkpoint
from pirl_plugin.files import atomic_write
from pirl_plugin.models.resnet import ResNetTrunk
from pirl_plugin.models.timm_trunk import TimmTrunk

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import nn

    from pirl_plugin.models.trunks import AnyTrunk


def load_trunk(
    path: str | Path, trust_pickle: bool = False, at: str | None = None, timm: str | None = None
) -> AnyTrunk:
    """Load the trunk of a checkpoint of any kind that the export reads, in evaluation mode.

    Args:
        path: a checkpoint of VISSL or of torch, a Detectron2 pickle, or a safetensors file.
        trust_pickle: run the code in the file if torch's safe loading refuses it.
        at: keys and prefix of the trunk to take where the file holds several.
        timm: timm's name of the network, where the file does not say it.

    Returns:
        A module that takes normalised images ``(B, 3, H, W)`` and names of features.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it holds no whole trunk, safe loading refuses it, or its network is timm's and
            timm is not installed.
    """
    return trunk_in(read_checkpoint(Path(path), trust_pickle), path, at, timm)


def trunk_in(
    content: Mapping[str, object],
    path: str | Path,
    at: str | None = None,
    timm: str | None = None,
) -> AnyTrunk:
    """Load the trunk of a checkpoint that has been read: as :func:`load_trunk`."""
    found = find_any_trunk(content, str(path), at)
    trunk: AnyTrunk
    if isinstance(found, TimmTensors):
        trunk = TimmTrunk(found.architecture, found.options)
    else:
        trunk = ResNetTrunk(found.depth, found.width, found.small_stem)
    state = trunk_state(found)
    if mismatch := compare(trunk.state_dict(), state):
        raise ValueError(
            f"{path} does not fit {found.title}: {mismatch}; name a checkpoint that was "
            f"written whole"
        )
    trunk.load_state_dict(state, strict=False)  # whole, but for batch norm's counters
    return trunk.eval()


def save_trunk(trunk: nn.Module, path: str | Path) -> None:
    """Write a trunk as a checkpoint that the host's benchmarks take as ``PARAMS_FILE``."""
    with atomic_write(path) as file:
        torch.save(vissl_checkpoint(trunk.state_dict()), file)
