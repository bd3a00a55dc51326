"""VISSL's data set for our runs: labels are loaded without pickle and are never invented."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from vissl import data as host_data
from vissl.data.data_helper import balanced_sub_sampling, unbalanced_sub_sampling
from vissl.data.dataset_catalog import VisslDatasetCatalog
from vissl.data.ssl_dataset import GenericSSLDataset
from vissl.data.ssl_transforms import get_transform

from pirl_plugin.images.classes import NO_CLASS
from pirl_plugin.images.names import SOURCES
from pirl_plugin.images.reading import RGB
from pirl_plugin.system.failures import Refused, check
from pirl_plugin.system.files import digest_of
from pirl_plugin.system.watcher import waiting
from pirl_plugin.vissl.adapters.images import PIRLDiskDataset

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from vissl.config import AttrDict

    from pirl_plugin.models.network_config import NetworkConfig


class PIRLDataset(GenericSSLDataset):
    """``GenericSSLDataset`` with safe labels, limited to labeled images.

    Runs that read no labels, such as pre-training, use all images.
    """

    data_limit: int
    data_limit_sampling: Any
    data_objs: list[Any]
    label_objs: list[Any]
    image_and_label_subset: Any

    def __init__(self, cfg: AttrDict, split: str, *args: Any, **kwargs: Any) -> None:
        check_paths(cfg, split)
        super().__init__(cfg, split, *args, **kwargs)
        if not set(SOURCES) & set(self.label_sources):
            return
        labels = self.data_objs[0].get_labels()
        if labels.ndim != 1:  # images may have several classes
            return
        num_classes = int(labels.max()) + 1
        outputs = cfg.MODEL.HEAD.get("NUM_CLASSES", num_classes)
        # On a GPU, a label beyond the outputs would abort the process.
        expected = f"at least {num_classes}, the number of classes"
        check("config.MODEL.HEAD.NUM_CLASSES", outputs, outputs >= num_classes, expected)
        if self.data_limit < 0 and (labels == NO_CLASS).any():
            # As if VISSL had drawn exactly the labeled images.
            self.image_and_label_subset = np.flatnonzero(labels != NO_CLASS)
            self.data_limit = len(self.image_and_label_subset)
            self._subset_initialized = True

    @property
    def disk(self) -> PIRLDiskDataset | None:
        """The images, if they are from a source of this plugin."""
        data = next(iter(self.data_objs), None)  # our runs have one source
        return data if isinstance(data, PIRLDiskDataset) else None

    def read_as(self, images: NetworkConfig) -> None:
        """Read images with a run's channels, dtype and mean, from a source of this plugin.

        Images other than RGB in uint8 are tensors, which torchvision's ``ToTensor`` refuses.
        """
        if self.disk is None:
            return
        self.disk.reading = images.reading._replace(nodata=self.disk.reading.nodata)
        if images.pixel_type != RGB:
            entries = self.cfg.DATA[self.split].TRANSFORMS
            kept = [entry for entry in entries if entry["name"] != "ToTensor"]
            self.transform = get_transform(kept)

    def identity(self) -> dict[str, Any]:
        """Return the images' identity, for the run's record.

        Returns:
            ``count``; for this plugin's sources, a digest of the ``paths`` below their folder; and
            if labels are read, a digest of the ``classes``.
        """
        identity: dict[str, Any] = {"count": len(self)}
        if self.disk is not None:
            # Relative to the folder with the images or their list, which may be moved.
            path = self.disk.path
            folder = path if os.path.isdir(path) else os.path.dirname(path)
            paths = map(self.disk.source.path_of, range(len(self.disk)))  # not a list: gigabytes
            identity["paths"] = digest_of(paths, folder)
        if self.label_sources and not self.labels_init:  # VISSL does this for the first image
            self.load_labels()
        if self.label_objs:
            labels = chain.from_iterable(map(np.ravel, self.label_objs))
            identity["classes"] = digest_of(map(str, labels))
        return identity

    def waiting(self) -> AbstractContextManager[None]:
        """Limit how long a block may wait for images; only this plugin's sources name them."""
        return waiting() if self.disk is None else self.disk.source.waiting()

    def unreadable_paths(self) -> list[str]:
        """Return the unreadable paths found so far, for this plugin's sources."""
        return [] if self.disk is None else self.disk.source.unreadable_paths()

    def load_labels(self) -> None:
        """Load the labels from all sources, after checking their files.

        VISSL reads label files with ``allow_pickle=True``, which can run code.

        Raises:
            ValueError: a label file contains pickled objects.
        """
        for paths in self.label_paths:
            for path in [paths] if isinstance(paths, str) else paths:
                if os.path.isfile(path):  # not "", for a source without a label file
                    np.load(path, "r")  # raises without allow_pickle
        super().load_labels()
        for labels, images in zip(self.label_objs, self.data_objs, strict=False):
            if len(labels) != len(images):
                raise Refused(
                    f"config.DATA.{self.split}.LABEL_PATHS = {self.label_paths}: expected "
                    f"{len(images)} labels, one per image, got {len(labels)}"
                )

    def _init_image_and_label_subset(self) -> None:
        """Draw ``DATA_LIMIT`` images from the labeled ones; VISSL would draw from all."""
        if self.label_objs and np.ndim(self.label_objs[0]) == 1:
            labels = np.asarray(self.label_objs[0])
            sampling = self.data_limit_sampling
            self.image_and_label_subset = draw_rows(labels, self.data_limit, sampling)
            self._subset_initialized = True
        else:
            super()._init_image_and_label_subset()

    def __getitem__(self, idx: int) -> dict[str, Any]:
        """Return an image with its labels; an unreadable image has the label −1.

        Its pixels are gray, and would otherwise be trained and scored as its class. Multi-class
        labels, such as VOC07's, stay.
        """
        item: dict[str, Any] = super().__getitem__(idx)
        if self.label_objs:
            for number, valid in enumerate(item["data_valid"]):
                if valid == -1 and np.ndim(item["label"][number]) == 0:
                    item["label"][number] = np.int64(NO_CLASS)
        return item


def draw_rows(
    labels: NDArray[np.int64], limit: int, sampling: Mapping[str, Any]
) -> NDArray[np.int64]:
    """Draw labeled images as VISSL does for ``DATA_LIMIT``.

    Args:
        labels: one class per image, int64 ``(N,)``; −1: unlabeled.
        limit: number of images to draw.
        sampling: the ``DATA_LIMIT_SAMPLING`` section.

    Returns:
        The drawn rows, int64 ``(limit,)``.
    """
    rows = np.flatnonzero(labels != NO_CLASS)
    options = {
        "num_samples": limit,
        "skip_samples": sampling["SKIP_NUM_SAMPLES"],
        "seed": sampling["SEED"],
    }
    if sampling["IS_BALANCED"]:
        return rows[balanced_sub_sampling(labels[rows], **options)]
    return rows[unbalanced_sub_sampling(len(rows), **options)]


def open_datasets(config: AttrDict, splits: Iterable[str]) -> dict[str, PIRLDataset]:
    """Open a run's images.

    Args:
        config: VISSL's complete configuration.
        splits: keys in ``config.DATA``: ``TRAIN``, ``TEST``.

    Returns:
        Split → data set, as in VISSL's task: ``train``, ``test``.
    """
    datasets = {}
    for split in splits:
        datasets[split.lower()] = PIRLDataset(
            config,
            split,
            host_data.DATASET_SOURCE_MAP,
            host_data.DATA_SOURCES_WITH_SUBSET_SUPPORT,
        )
    return datasets


def check_paths(config: AttrDict, split: str) -> None:
    """Refuse pickle files in a split, and several paths for one of this plugin's sources.

    Raises:
        Refused: the first mistake.
    """
    data = config.DATA[split]
    key = f"config.DATA.{split}"
    paths = list(data.DATA_PATHS)
    for path in (*paths, *data.LABEL_PATHS):
        if str(path).endswith((".pkl", ".pickle")):
            raise Refused(
                f"{key} names {path}: a pickle file can run code. Use a .npy file, or a text file "
                f"with one path per line."
            )
    if not set(data.DATA_SOURCES) & set(SOURCES):
        return
    names = list(data.DATASET_NAMES)
    if not paths and not all(map(VisslDatasetCatalog.has_data, names)):
        raise Refused(
            f"{key}.DATA_PATHS is empty, and no catalog has {', '.join(names)}. Set "
            f"{key}.DATA_PATHS=[DIR], or PIRL_DATASETS=DIR in the environment."
        )
    if len(paths) > 1 or len(data.DATA_SOURCES) != 1:
        raise Refused(
            f"{key}.DATA_PATHS = {paths}: expected one path with one source. List all images in "
            f"one file, and add +config/pirl/datasets=filelist."
        )
