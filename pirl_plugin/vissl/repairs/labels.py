"""Patches of VISSL's data paths and labels."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pirl_plugin.images.names import SOURCES
from pirl_plugin.system.failures import Refused
from pirl_plugin.system.host_config import is_ours

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

    Ours give ``get_labels()``, like those of torchvision. ``load_labels`` reads files with
    ``allow_pickle=True``, which can run code in them. Our runs refuse a file with pickled objects,
    or with another number of labels than there are images.
    """
    dataset = module.GenericSSLDataset
    original = dataset.load_labels

    @functools.wraps(original)
    def load_labels(self: GenericSSLDataset) -> None:
        if is_ours(self.cfg):
            _refuse_pickles(self.label_paths)
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
        if is_ours(self.cfg):
            _compare_lengths(self)

    dataset.load_labels = load_labels


def _refuse_pickles(label_paths: list[str | list[str]]) -> None:
    """Raise ``ValueError`` if a label file holds pickled objects."""
    import numpy as np

    for paths in label_paths:
        for path in [paths] if isinstance(paths, str) else paths:
            if os.path.isfile(path):  # not '', the path of a source without a label file
                np.load(path, "r")  # without allow_pickle, it refuses


def _compare_lengths(dataset: GenericSSLDataset) -> None:
    """Check that each image has a label.

    Raises:
        ValueError: a label file has another number of labels.
    """
    for source, labels, images in zip(
        dataset.label_sources, dataset.label_objs, dataset.data_objs, strict=False
    ):
        is_file = source == "disk_filelist" and not isinstance(labels, list)
        if is_file and len(labels) != len(images):
            raise Refused(
                f"config.DATA.{dataset.split}.LABEL_PATHS = {dataset.label_paths}: expected "
                f"{len(images)} labels, one for each image, found {len(labels)}"
            )
