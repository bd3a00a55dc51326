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

from pirl_plugin.images.folders import find_images
from pirl_plugin.images.names import DISK_FOLDER, PIRL_TRANSFORMS
from pirl_plugin.images.shared import SharedArray
from pirl_plugin.images.sources import open_source


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

    Where the split's first transform is one of PIRL's it yields ``SourceImage``, elsewhere PIL RGB
    images.

    Args:
        cfg: VISSL's configuration; of ``cfg["DATA"][split]`` it reads ``TRANSFORMS``,
            ``DEFAULT_GRAY_IMG_SIZE`` and, for lists, ``REMOVE_IMG_PATH_PREFIX`` and
            ``NEW_IMG_PATH_PREFIX``; and it reads ``cfg["SEED_VALUE"]``.
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
        self._epoch = SharedArray(np.zeros(1, np.int64))
        self._yields_tensors = transforms[0].get("name") in PIRL_TRANSFORMS
        try:
            self.source = open_source(
                path,
                data_source,
                split="train" if split == "TRAIN" else "test",
                remove_prefix=str(options.get("REMOVE_IMG_PATH_PREFIX") or ""),
                new_prefix=str(options.get("NEW_IMG_PATH_PREFIX") or ""),
            )
            self.source.grey_size = int(options.get("DEFAULT_GRAY_IMG_SIZE") or 224)
        except (FileNotFoundError, ValueError) as error:
            key = f"config.DATA.{split}"
            raise type(error)(
                f"{error}; set {key}.DATA_PATHS and {key}.DATA_SOURCES = [{data_source}] to what "
                f"fits each other"
            ) from error
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
        self._epoch.array[0] = epoch

    def get_image_paths(self) -> list[str]:
        """Paths of all images, in order."""
        return self.source.paths()

    def get_labels(self) -> NDArray[np.int64]:
        """Class of each image, (N,) or (N, classes).

        Raises:
            ValueError: the source has none.
        """
        try:
            return self.source.labels()
        except ValueError as error:
            key = f"config.DATA.{self._split}"
            raise ValueError(
                f"{error}; or give labels as {key}.LABEL_SOURCES=[disk_filelist] and "
                f"{key}.LABEL_PATHS=[FILE.npy]"
            ) from None

    def __getitem__(self, index: int) -> tuple[SourceImage | Image.Image, bool]:
        """Read and decode one image.

        Args:
            index: row, in [0, len).

        Returns:
            ``(image, is_valid)``; the image is grey where it could not be read.
        """
        pixels, is_valid = self.source[index]
        if self._yields_tensors:
            return SourceImage(pixels, self._seed, int(self._epoch.array[0])), is_valid
        return Image.fromarray(pixels.permute(1, 2, 0).contiguous().numpy()), is_valid


def check_source(cfg: Mapping[str, Any], data_source: str, path: str, split: str) -> None:
    """Complain as ``PIRLDiskDataset`` would, without listing a folder that holds enough.

    Raises:
        FileNotFoundError: if ``path`` does not exist or is of the other kind.
        ValueError: if it holds fewer than two images, or a list cannot be read.
    """
    is_folder = data_source == DISK_FOLDER and os.path.isdir(path)
    if not is_folder or len(list(islice(find_images(path), 2))) < 2:
        PIRLDiskDataset(cfg, data_source, path, split)
