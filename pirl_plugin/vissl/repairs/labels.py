"""Data paths, the catalog, labels, and images without a class, whose label is −1."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pirl_plugin.images.names import SOURCES

if TYPE_CHECKING:
    from torch import Tensor
    from vissl.config import AttrDict
    from vissl.data.ssl_dataset import GenericSSLDataset
    from vissl.losses.cross_entropy_multiple_output_single_target import SmoothCrossEntropy
    from vissl.meters.accuracy_list_meter import AccuracyListMeter

# DATASET_NAMES in our configs -> paths in DIR of the training and the test data.
LAYOUT: dict[str, tuple[str, str]] = {
    "imagenet1k_folder": ("imagenet1k/train", "imagenet1k/val"),
    "pirl_imagenet1k_1percent": ("imagenet1k/train/1percent.txt", "imagenet1k/val"),
    "pirl_imagenet1k_10percent": ("imagenet1k/train/10percent.txt", "imagenet1k/val"),
    "places205_folder": ("places205/train", "places205/val"),
    "inaturalist18_folder": ("inaturalist18", "inaturalist18"),
    "pirl_voc07": ("VOCdevkit/VOC2007", "VOCdevkit/VOC2007"),
    "yfcc1m_filelist": ("yfcc1m/train.npy", ""),
}


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


def register_our_datasets(module: Any) -> None:
    """Feature: ``PIRL_DATASETS=DIR`` names the folder of all data sets, for the host's catalog.

    Entries of the user's own catalog have priority. Placeholders such as ``<img_path>`` in git
    main's default catalog are replaced. Labels come from the data sources, not from files.
    """
    root = os.environ.get("PIRL_DATASETS")
    if not root:
        return
    catalog = module.VisslDatasetCatalog
    for name, (train, val) in LAYOUT.items():
        if catalog.has_data(name):
            is_placeholder = str(catalog.get(name)["train"][0]).startswith("<")
            if not is_placeholder:
                continue
            catalog.remove(name)
        # The host expects a path of images and a path of labels.
        paths = {"train": [str(Path(root, train)), ""], "val": [str(Path(root, val)), ""]}
        catalog.register_data(name, paths)


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


def accuracy_is_of_images_with_a_class(module: Any) -> None:
    """Never worked: the label −1, which the host's loss ignores, ends the run in its meter."""
    meter = module.AccuracyListMeter
    original = meter.update

    @functools.wraps(original)
    def update(
        self: AccuracyListMeter, model_output: Tensor | list[Tensor], target: Tensor
    ) -> None:
        outputs = model_output if isinstance(model_output, list) else [model_output]
        if target.ndim == 1:  # not labels of mixed images, (B, classes)
            has_class = target >= 0
            if not has_class.any():
                return
            outputs = [output[has_class] for output in outputs]
            target = target[has_class]
        original(self, outputs, target)

    meter.update = update


def loss_without_classes_is_zero(module: Any) -> None:
    """Never worked: the mean loss of a batch in which no image has a class is not a number."""
    loss = module.SmoothCrossEntropy
    original = loss.forward

    @functools.wraps(original)
    def forward(self: SmoothCrossEntropy, input: Tensor, target: Tensor) -> Tensor:
        if target.ndim == 1 and (target == self.ignore_index).all():
            return input.sum() * 0.0  # with a gradient, for the processes to average
        result: Tensor = original(self, input, target)
        return result

    loss.forward = forward
