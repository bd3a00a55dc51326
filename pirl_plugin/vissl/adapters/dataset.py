"""VISSL's data set for our runs: images and labels from one of this plugin's sources."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from vissl import data as host_data
from vissl.data.data_helper import balanced_sub_sampling, unbalanced_sub_sampling
from vissl.data.dataset_catalog import VisslDatasetCatalog, get_data_files
from vissl.data.ssl_dataset import GenericSSLDataset
from vissl.data.ssl_transforms import get_transform

from pirl_plugin.images.classes import NO_CLASS, join_classes
from pirl_plugin.images.names import SOURCES
from pirl_plugin.images.paper_datasets import NumberedSource
from pirl_plugin.images.reading import RGB
from pirl_plugin.system.failures import Refused, check, check_name
from pirl_plugin.system.files import digest_of
from pirl_plugin.vissl.adapters.images import PIRLDiskDataset, open_split

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from vissl.config import AttrDict

    from pirl_plugin.models.network_config import NetworkConfig


class PIRLDataset(GenericSSLDataset):
    """``GenericSSLDataset`` for one of this plugin's sources, limited to labeled images.

    Runs that read no labels, such as pre-training, use all images.

    Args:
        cfg: VISSL's complete configuration.
        split: key in ``cfg.DATA``: ``TRAIN`` or ``TEST``.

    Attributes:
        disk: the images.
    """

    data_limit: int
    labels_init: bool
    data_limit_sampling: Any
    label_objs: list[Any]
    image_and_label_subset: Any

    def __init__(self, cfg: AttrDict, split: str) -> None:
        check_source(cfg, split)
        super().__init__(
            cfg, split, host_data.DATASET_SOURCE_MAP, host_data.DATA_SOURCES_WITH_SUBSET_SUPPORT
        )
        self.disk: PIRLDiskDataset = self.data_objs[0]
        self.load_labels()

    def _read_labels(self) -> NDArray[np.int64]:
        """Return labels, int64 ``(N,)``, −1: unlabeled; or ``(N, classes)`` for VOC07.

        Raises:
            NoLabels: the source has no labels.
            Refused: a test image has a class that no training image has.
        """
        source = self.disk.source
        if self.split == "TRAIN" or isinstance(source, NumberedSource):
            return source.labels()
        # Number test classes as in training.
        (path,), _ = get_data_files("TRAIN", self.cfg.DATA)
        training = open_split(self.cfg, self.cfg.DATA.TRAIN.DATA_SOURCES[0], path, "TRAIN")
        return join_classes(training.classes, source.named_classes, self.disk.path)

    def load_labels(self) -> None:
        """Load the labels; VISSL can load them only from files and its own sources.

        VISSL's git main calls this again before training.
        """
        if self.labels_init or not self.label_sources:
            return
        labels = self._read_labels()
        self.label_objs = [labels]
        self.labels_init = True
        if labels.ndim != 1:  # images may have several classes
            return
        num_classes = int(labels.max()) + 1
        outputs = self.cfg.MODEL.HEAD.get("NUM_CLASSES", num_classes)
        # On a GPU, a label beyond the outputs would abort the process.
        expected = f"at least {num_classes}, the number of classes"
        check("config.MODEL.HEAD.NUM_CLASSES", outputs, outputs >= num_classes, expected)
        if self.data_limit >= 0 or NO_CLASS in labels:
            # VISSL would draw from all images; without a limit, it would use all of them.
            rows = draw_rows(labels, self.data_limit, self.data_limit_sampling)
            self.image_and_label_subset = rows
            self.data_limit = len(rows)
            self._subset_initialized = True

    def read_as(self, images: NetworkConfig) -> None:
        """Read images with a run's channels, dtype and mean.

        Images other than RGB in uint8 are tensors, which torchvision's ``ToTensor`` refuses.
        """
        self.disk.reading = images.reading._replace(nodata=self.disk.reading.nodata)
        if images.pixel_type != RGB:
            entries = self.cfg.DATA[self.split].TRANSFORMS
            kept = [entry for entry in entries if entry["name"] != "ToTensor"]
            self.transform = get_transform(kept)

    def identity(self) -> dict[str, Any]:
        """Return the images' identity, for the run's record.

        Returns:
            ``count``; a digest of the ``paths`` below their folder; and if labels are read, a
            digest of the ``classes``.
        """
        # Relative to the folder with the images or their list, which may be moved.
        path = self.disk.path
        folder = path if os.path.isdir(path) else os.path.dirname(path)
        paths = map(self.disk.source.path_of, range(len(self.disk)))  # not a list: gigabytes
        identity = {"count": len(self), "paths": digest_of(paths, folder)}
        if self.label_objs:
            identity["classes"] = digest_of(map(str, self.label_objs[0].ravel()))
        return identity

    def __getitem__(self, idx: int) -> dict[str, Any]:
        """Return an image with its labels; an unreadable image has the label −1.

        Its pixels are gray, and would otherwise be trained and scored as its class. Multi-class
        labels, such as VOC07's, stay.
        """
        item: dict[str, Any] = super().__getitem__(idx)
        has_one_class = bool(self.label_objs) and self.label_objs[0].ndim == 1
        if has_one_class and item["data_valid"][0] == -1:
            item["label"] = [np.int64(NO_CLASS)] * len(item["label"])
        return item


def draw_rows(
    labels: NDArray[np.int64], limit: int, sampling: Mapping[str, Any]
) -> NDArray[np.int64]:
    """Draw labeled images as VISSL does for ``DATA_LIMIT``.

    Args:
        labels: one class per image, int64 ``(N,)``; −1: unlabeled.
        limit: number of images to draw; −1: all labeled images.
        sampling: the ``DATA_LIMIT_SAMPLING`` section.

    Returns:
        The drawn rows, int64 ``(limit,)``.
    """
    rows = np.flatnonzero(labels != NO_CLASS)
    if limit < 0:
        return rows
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
    return {split.lower(): PIRLDataset(config, split) for split in splits}


def check_source(config: AttrDict, split: str) -> None:
    """Refuse all but one path to one of this plugin's sources, which also has the labels.

    VISSL's own sources read label files with ``allow_pickle=True``, which can run code.

    Raises:
        Refused: the first mistake.
    """
    data = config.DATA[split]
    key = f"config.DATA.{split}"
    paths = list(data.DATA_PATHS)
    sources = list(data.DATA_SOURCES)
    if len(paths) > 1 or len(sources) != 1:
        raise Refused(
            f"{key}.DATA_PATHS = {paths}: expected one path with one source. List all images in "
            f"one file, and add +config/pirl/datasets=filelist."
        )
    check_name(f"{key}.DATA_SOURCES", sources[0], SOURCES)
    labels = list(data.LABEL_SOURCES)
    check(
        f"{key}.LABEL_SOURCES", labels, labels in ([], sources), f"{sources}, or [] for no labels"
    )
    names = list(data.DATASET_NAMES)
    if not paths and not all(map(VisslDatasetCatalog.has_data, names)):
        raise Refused(
            f"{key}.DATA_PATHS is empty, and no catalog has {', '.join(names)}. Set "
            f"{key}.DATA_PATHS=[DIR]."
        )
