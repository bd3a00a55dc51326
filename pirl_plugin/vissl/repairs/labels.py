"""Patches of VISSL's data paths and labels."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pirl_plugin.images.names import SOURCES

if TYPE_CHECKING:
    from vissl.config import AttrDict
    from vissl.data.ssl_dataset import GenericSSLDataset


def data_paths_suffice(module: Any) -> None:
    """Never worked: ``DATA_PATHS`` without ``LABEL_PATHS`` raises ``KeyError``.

    ``get_data_files`` then looks for labels in the catalog, by ``DATASET_NAMES``. It leaves out a
    path of labels that does not exist.
    """
    original: Callable[..., tuple[list[str], list[str]]] = module.get_data_files

    @functools.wraps(original)
    def get_data_files(split: str, dataset_config: AttrDict) -> tuple[list[str], list[str]]:
        config = dataset_config[split]
        has_data = module.VisslDatasetCatalog.has_data
        in_catalog = all(has_data(name) for name in config.DATASET_NAMES)
        if not config.DATA_PATHS or config.LABEL_PATHS or in_catalog:
            return original(split, dataset_config)
        config.LABEL_PATHS = [""] * len(config.DATA_PATHS)  # the empty path never exists
        try:
            return original(split, dataset_config)
        finally:
            config.LABEL_PATHS = []

    module.get_data_files = get_data_files


def labels_of_our_sources(module: Any) -> None:
    """Never worked: ``load_labels`` takes labels only from files and from torchvision's data sets.

    Ours give ``get_labels()``, like those of torchvision.
    """
    dataset = module.GenericSSLDataset
    original = dataset.load_labels

    @functools.wraps(original)
    def load_labels(self: GenericSSLDataset) -> None:
        sources = self.label_sources
        # The host calls get_labels() of the sources with this name.
        self.label_sources = [
            "torchvision_dataset" if {label, data} <= set(SOURCES) else label
            for label, data in zip(sources, self.data_sources, strict=False)
        ]
        try:
            original(self)
        finally:
            self.label_sources = sources

    dataset.load_labels = load_labels
