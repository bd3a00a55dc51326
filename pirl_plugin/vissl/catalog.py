"""Data sets that one path finds: ``PIRL_DATASETS=DIR`` in the environment names them all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

# DATASET_NAMES of our configs -> where DIR has the data for training and for testing.
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
    """Add the data sets of ``PIRL_DATASETS`` to the host's catalog, which has no other of them.

    What the user's own catalog lists stays; git main's default one lists places to be filled in,
    such as ``<img_path>``, which give way. Labels come from the data sources, not from files.
    """
    root, catalog = os.environ.get("PIRL_DATASETS"), module.VisslDatasetCatalog
    if not root:
        return
    for name, (train, val) in LAYOUT.items():
        if catalog.has_data(name):
            if not str(catalog.get(name)["train"][0]).startswith("<"):
                continue
            catalog.remove(name)
        paths = {"train": [str(Path(root, train)), ""], "val": [str(Path(root, val)), ""]}
        catalog.register_data(name, paths)
