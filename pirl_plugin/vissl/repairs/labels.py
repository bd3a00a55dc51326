"""Data paths, the catalog, labels, and images without a class, whose label is −1."""

from __future__ import annotations

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


def data_paths_suffice(
    split: str, dataset_config: AttrDict, *, original: Callable[..., Any]
) -> tuple[list[str], list[str]]:
    """Never worked: ``DATA_PATHS`` without ``LABEL_PATHS`` raises ``KeyError``.

    ``get_data_files`` then looks for labels in the catalog, by ``DATASET_NAMES``. It leaves out a
    path of labels that does not exist.
    """
    from vissl.data.dataset_catalog import VisslDatasetCatalog

    config = dataset_config[split]
    in_catalog = all(map(VisslDatasetCatalog.has_data, config.DATASET_NAMES))
    needs_no_labels = config.DATA_PATHS and not config.LABEL_PATHS and not in_catalog
    if needs_no_labels:
        config.LABEL_PATHS = [""] * len(config.DATA_PATHS)  # the empty path never exists
    try:
        files: tuple[list[str], list[str]] = original(split, dataset_config)
    finally:
        if needs_no_labels:
            config.LABEL_PATHS = []
    return files


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


def labels_of_our_sources(dataset: GenericSSLDataset, *, original: Callable[..., Any]) -> None:
    """Never worked: ``load_labels`` takes labels only from files and from torchvision's data sets.

    Ours give ``get_labels()``, like those of torchvision.
    """
    sources = dataset.label_sources
    # The host calls get_labels() of the sources with this name.
    dataset.label_sources = [
        "torchvision_dataset" if {label, data} <= set(SOURCES) else label
        for label, data in zip(sources, dataset.data_sources, strict=False)
    ]
    try:
        original(dataset)
    finally:
        dataset.label_sources = sources


def accuracy_is_of_images_with_a_class(
    meter: AccuracyListMeter,
    model_output: Tensor | list[Tensor],
    target: Tensor,
    *,
    original: Callable[..., Any],
) -> None:
    """Never worked: the label −1, which the host's loss ignores, ends the run in its meter."""
    outputs = model_output if isinstance(model_output, list) else [model_output]
    if target.ndim == 1:  # not labels of mixed images, (B, classes)
        has_class = target >= 0
        if not has_class.any():
            return
        outputs = [output[has_class] for output in outputs]
        target = target[has_class]
    original(meter, outputs, target)


def loss_without_classes_is_zero(
    loss: SmoothCrossEntropy, input: Tensor, target: Tensor, *, original: Callable[..., Any]
) -> Tensor:
    """Never worked: the mean loss of a batch in which no image has a class is not a number."""
    if target.ndim == 1 and (target == loss.ignore_index).all():
        return input.sum() * 0.0  # with a gradient, for the processes to average
    result: Tensor = original(loss, input, target)
    return result
