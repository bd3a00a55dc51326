"""Whether the images of a command are those that the finished run in its folder was made with."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from pirl_plugin.vissl.checks import sources_of, splits_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor
    from vissl.config import AttrDict


def check_same_images(
    config: AttrDict, content: Mapping[str, Any], saved: Mapping[str, Any], folder: str
) -> None:
    """Refuse a command on other images than those of the finished run in its folder.

    Images that were moved are recognised by the fingerprint in the checkpoint.

    Args:
        config: of the command.
        content: of the final checkpoint.
        saved: the configuration of its run.
        folder: of the run.

    Raises:
        SystemExit: what was found, what was expected and what to do.
    """
    for split in splits_of(config):
        now = list(config.DATA[split].DATA_PATHS)
        before = list(saved["DATA"].get(split, {}).get("DATA_PATHS") or [])
        if not now or not before or _real(now) == _real(before):
            continue
        if _are_those_of(config, content, split):
            continue
        raise SystemExit(
            f"pirl_plugin: config.DATA.{split}.DATA_PATHS = {now!r}: expected "
            f"{before!r}, with which the run in {folder} was made to its end; give another "
            f"config.CHECKPOINT.DIR to start a new one"
        )


def _real(paths: Sequence[str]) -> list[str]:
    return [os.path.realpath(path) for path in paths]


def _are_those_of(config: AttrDict, content: Mapping[str, Any], split: str) -> bool:
    """Whether the images of a split have the relative paths of those of a checkpoint."""
    import torch

    from pirl_plugin.memory.row_paths import hash_paths
    from pirl_plugin.vissl.adapters.source import PIRLDiskDataset
    from pirl_plugin.vissl.hooks.rows import paths_below, saved_hashes

    before: Tensor | None = saved_hashes(content, split.lower())
    sources = sources_of(config, split)
    if before is None or len(sources) != 1 or config.DATA[split].DATA_LIMIT >= 0:
        return False
    images = PIRLDiskDataset(config, *sources[0], split)
    if len(images) != len(before):
        return False
    return torch.equal(before, hash_paths(paths_below(images, sources[0][1])))
