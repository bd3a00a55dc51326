"""The adapter of our sources to VISSL: one class for all of them."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from pirl_plugin.images.names import DISK_FILELIST, DISK_FOLDER, PIRL_TRANSFORMS
from pirl_plugin.images.shared_bytes import SharedInteger
from pirl_plugin.images.sources.base import ImageSource
from pirl_plugin.images.sources.paths import find_images
from pirl_plugin.images.sources.registry import open_source, source_class


class SourceImage(NamedTuple):
    """A decoded image and what its random draws are keyed on (with its row in the data set).

    Attributes:
        pixels: uint8 (3, H, W), RGB.
        seed: the run's seed.
        epoch: number of the pass over the data set.
    """

    pixels: torch.Tensor
    seed: int
    epoch: int


class PIRLDiskDataset:
    """Any source of :data:`pirl_plugin.images.names.SOURCES`, as VISSL constructs and reads it.

    It takes the place of VISSL's ``disk_folder`` and ``disk_filelist`` under any transforms: where
    the split's first transform is one of PIRL's it yields ``SourceImage``, elsewhere PIL RGB
    images.

    Args:
        cfg: VISSL's configuration; of ``cfg["DATA"][split]`` it reads ``TRANSFORMS``,
            ``MMAP_MODE``, ``DEFAULT_GRAY_IMG_SIZE`` and, for lists, ``REMOVE_IMG_PATH_PREFIX``
            and ``NEW_IMG_PATH_PREFIX``; and it reads ``cfg["SEED_VALUE"]``.
        data_source: name of the source.
        path: what the source reads: a folder or a file.
        split: key of ``cfg["DATA"]``: ``TRAIN`` or ``TEST``.
        dataset_name: for the log only.

    Raises:
        FileNotFoundError: if ``path`` does not exist or is of the other kind.
        ValueError: if it holds fewer than two images, or cannot be read.
    """

    def __init__(
        self,
        cfg: Mapping[str, Any],
        data_source: str,
        path: str,
        split: str,
        dataset_name: str = "",
    ) -> None:
        options = cfg["DATA"][split]
        transforms = options.get("TRANSFORMS") or [{}]
        self.data_source = data_source
        self.dataset_name = dataset_name
        self._split = split
        self._seed = int(cfg.get("SEED_VALUE", 0))
        self._epoch = SharedInteger()
        self._yields_tensors = transforms[0].get("name") in PIRL_TRANSFORMS
        self.source = _open(data_source, path, split, options)
        logging.root.info(
            f"{dataset_name or split}: {len(self.source)} images in {os.fspath(path)}"
        )

    def __len__(self) -> int:
        return len(self.source)

    def num_samples(self) -> int:
        """Number of images."""
        return len(self.source)

    @property
    def num_unreadable(self) -> int:
        """Number of files found unreadable so far, by this process and its loader workers."""
        return self.source.num_unreadable

    def unreadable_paths(self) -> list[str]:
        """Paths of these files."""
        return self.source.unreadable_paths()

    def set_epoch(self, epoch: int) -> None:
        """Say which pass over the data comes next; call it before the workers start."""
        self._epoch.value = int(epoch)

    def get_image_paths(self) -> list[str]:
        """Paths of all images, in order."""
        return self.source.paths()

    def get_labels(self) -> NDArray[np.int64]:
        """Class of each image, (N,) or (N, classes), as the source tells it.

        Raises:
            ValueError: the source tells none.
        """
        try:
            return self.source.labels()
        except ValueError as error:
            raise ValueError(f"{error}; {self._label_remedy()}") from None

    def class_root(self) -> str | None:
        """Folder whose subfolders number the classes; None if the labels are of another kind.

        Raises:
            ValueError: the classes should be those of folders, and cannot be.
        """
        try:
            return self.source.class_root()
        except ValueError as error:
            raise ValueError(f"{error}; {self._label_remedy()}") from None

    def _label_remedy(self) -> str:
        return (
            f"or give labels as config.DATA.{self._split}.LABEL_SOURCES=[disk_filelist] and "
            f"config.DATA.{self._split}.LABEL_PATHS=[FILE.npy]"
        )

    def __getitem__(self, index: int) -> tuple[SourceImage | Image.Image, bool]:
        """Read and decode one image.

        Args:
            index: row, in [0, len).

        Returns:
            ``(image, is_valid)``; the image is grey where it could not be read.
        """
        pixels, is_valid = self.source[index]
        if self._yields_tensors:
            return SourceImage(pixels, self._seed, self._epoch.value), is_valid
        return Image.fromarray(pixels.permute(1, 2, 0).contiguous().numpy()), is_valid


def _open(data_source: str, path: str, split: str, options: Mapping[str, Any]) -> ImageSource:
    """Open a source with what VISSL's keys say; its errors name the key of the path."""
    source_class(data_source)  # whose error is about the name, not the path
    try:
        return open_source(
            data_source,
            path,
            split="train" if split == "TRAIN" else "test",
            mmap=bool(options.get("MMAP_MODE", True)),
            remove_prefix=str(options.get("REMOVE_IMG_PATH_PREFIX") or ""),
            new_prefix=str(options.get("NEW_IMG_PATH_PREFIX") or ""),
            grey_size=int(options.get("DEFAULT_GRAY_IMG_SIZE") or 224),
        )
    except (FileNotFoundError, ValueError) as error:
        raise type(error)(f"{error}; {_remedy(data_source, path, split, options)}") from error


def _remedy(data_source: str, path: str, split: str, options: Mapping[str, Any]) -> str:
    """What to do about a path that a source cannot read."""
    other = None
    if data_source == DISK_FILELIST and os.path.isdir(path):
        other = DISK_FOLDER
    elif data_source == DISK_FOLDER and os.path.isfile(path):
        other = DISK_FILELIST
    if other is None:
        named = "FILE" if data_source == DISK_FILELIST else "DIR"
        return f"set config.DATA.{split}.DATA_PATHS=[{named}]"
    if split == "TRAIN" and not options.get("LABEL_SOURCES"):
        return f"take +config/pirl/datasets={other.removeprefix('pirl_disk_')}"
    key = f"config.DATA.{split}"
    return f"set {key}.DATA_SOURCES=[{other}] and {key}.LABEL_SOURCES=[{other}]"


def check_source(cfg: Mapping[str, Any], data_source: str, path: str, split: str) -> None:
    """Complain as ``PIRLDiskDataset`` would, without listing a folder that holds enough.

    Raises:
        FileNotFoundError: if ``path`` does not exist or is of the other kind.
        ValueError: if it holds fewer than two images, or a list cannot be read.
    """
    is_folder = data_source == DISK_FOLDER and os.path.isdir(path)
    if not is_folder or len(list(islice(find_images(path), 2))) < 2:
        _open(data_source, path, split, cfg["DATA"][split])
