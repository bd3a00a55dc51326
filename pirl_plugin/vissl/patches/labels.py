"""Patches of VISSL's data paths and labels."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from itertools import chain
from typing import TYPE_CHECKING, Any

from pirl_plugin.images.names import SOURCES
from pirl_plugin.settings import is_ours

if TYPE_CHECKING:
    from vissl.config import AttrDict
    from vissl.data.ssl_dataset import GenericSSLDataset


def data_paths_suffice(module: Any) -> None:
    """Broke: ``DATA_PATHS`` without ``LABEL_PATHS`` raises ``KeyError`` unless in a catalog."""
    original: Callable[..., tuple[list[str], list[str]]] = module.get_data_files

    @functools.wraps(original)
    def get_data_files(split: str, dataset_config: AttrDict) -> tuple[list[str], list[str]]:
        config = dataset_config[split]
        names = config.DATASET_NAMES
        in_catalog = all(module.VisslDatasetCatalog.has_data(name) for name in names)
        if not config.DATA_PATHS or config.LABEL_PATHS or in_catalog:
            return original(split, dataset_config)
        config.LABEL_PATHS = [""] * len(config.DATA_PATHS)  # the empty path never exists
        try:
            return original(split, dataset_config)
        finally:
            config.LABEL_PATHS = []

    module.get_data_files = get_data_files


def labels_of_our_sources(module: Any) -> None:
    """Broke: ``load_labels`` supports only a few label sources; ours give ``get_labels()``.

    It reads label files with ``allow_pickle=True``, which can run code in them. Our runs refuse a
    file with pickled objects.
    """
    import numpy as np

    dataset = module.GenericSSLDataset
    original = dataset.load_labels

    @functools.wraps(original)
    def load_labels(self: GenericSSLDataset) -> None:
        sources, paths = self.label_sources, self.label_paths
        if is_ours(self.cfg):
            for path in chain.from_iterable([p] if isinstance(p, str) else p for p in paths):
                if os.path.isfile(path):  # not '', the path of a source without a label file
                    np.load(path, "r")  # refuses pickled objects
        self.label_sources = [
            "torchvision_dataset" if {label, data} <= set(SOURCES) else label
            for label, data in zip(sources, self.data_sources, strict=False)
        ]
        try:
            original(self)
        finally:
            self.label_sources = sources

    dataset.load_labels = load_labels
