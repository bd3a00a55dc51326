"""The sources of images that a run reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pirl_plugin.images.names import SOURCES

if TYPE_CHECKING:
    from vissl.config import AttrDict


def splits_of(config: AttrDict) -> list[str]:
    """The splits that a run reads."""
    splits = ["TRAIN"] if not config.TEST_ONLY else []
    return splits + (["TEST"] if config.TEST_MODEL else [])


def sources_of(config: AttrDict, split: str) -> list[tuple[str, str]]:
    """Each source of a split that is one of this plugin, and its path."""
    from vissl.data.dataset_catalog import get_data_files

    sources = config.DATA[split].DATA_SOURCES
    if not any(source in SOURCES for source in sources):
        return []
    paths, _ = get_data_files(split, config.DATA)
    return [pair for pair in zip(sources, paths, strict=True) if pair[0] in SOURCES]
