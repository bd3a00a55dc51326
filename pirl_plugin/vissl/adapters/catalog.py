"""Data sets in one folder: the environment variable ``PIRL_DATASETS=DIR`` names it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

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


def register_our_datasets(module: Any) -> None:
    """Add the data sets of ``PIRL_DATASETS`` to the host's catalog.

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
