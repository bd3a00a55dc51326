"""Our images, views and batches as VISSL's data sources, transforms and collate function."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from pirl_plugin.images import names
from pirl_plugin.images.folders import find_images
from pirl_plugin.images.image_dataset import collate_views
from pirl_plugin.images.shared import SharedArray
from pirl_plugin.images.sources import open_source
from pirl_plugin.views.base import ImageViews, Views
from pirl_plugin.views.jigsaw import JigsawTask, JigsawViews, RotationJigsawViews
from pirl_plugin.views.pixels import image_generator
from pirl_plugin.views.rotation import RotationTask, RotationViews
from pirl_plugin.vissl.bases import ClassyTransform

_VIEWS: dict[str, type[Views]] = {
    names.JIGSAW: JigsawViews,
    names.ROTATION: RotationViews,
    names.ROTATION_JIGSAW: RotationJigsawViews,
    names.IMAGE: ImageViews,
    names.PREDICT_JIGSAW: JigsawTask,
    names.PREDICT_ROTATION: RotationTask,
}


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
        cfg: VISSL's configuration.
        data_source: name of the source.
        path: what the source reads: a folder or a file.
        split: key of ``cfg["DATA"]``: ``TRAIN`` or ``TEST``.
        dataset_name: not used.

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
        self.path = path
        self._seed = int(cfg.get("SEED_VALUE", 0))
        self._epoch = SharedArray(np.zeros(1, np.int64))
        self._yields_tensors = transforms[0].get("name") in _VIEWS
        try:
            self.source = open_source(
                path,
                data_source,
                split="train" if split == "TRAIN" else "test",
                remove_prefix=str(options.get("REMOVE_IMG_PATH_PREFIX") or ""),
                new_prefix=str(options.get("NEW_IMG_PATH_PREFIX") or ""),
            )
        except (FileNotFoundError, ValueError) as error:
            raise type(error)(f"config.DATA.{split}.DATA_PATHS: {error}") from error
        logging.root.info(f"{split}: {len(self.source)} images in {path}")

    def __len__(self) -> int:
        return len(self.source)

    def num_samples(self) -> int:
        """Number of images."""
        return len(self.source)

    def unreadable_paths(self) -> list[str]:
        """Paths of files found unreadable so far, by this process and its loader workers."""
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
        return self.source.labels()

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
    """Raise as ``PIRLDiskDataset`` would, without listing a folder that holds enough.

    Raises:
        FileNotFoundError: if ``path`` does not exist or is of the other kind.
        ValueError: if it holds fewer than two images, or a list cannot be read.
    """
    is_folder = data_source == names.DISK_FOLDER and os.path.isdir(path)
    if not is_folder or len(list(islice(find_images(path), 2))) < 2:
        PIRLDiskDataset(cfg, data_source, path, split)


class PIRLTransform(ClassyTransform):
    """Replaces a sample's image by its views; a subclass for each name of ``_VIEWS``.

    It takes the whole sample (``data``, ``data_idx``, ``data_valid``, ``label``), because the
    draws are keyed on the image's row and an unreadable image gets black views.

    Args:
        **parameters: of the views class.

    Raises:
        ValueError: a parameter is unknown or out of range.
    """

    def __init__(self, **parameters: Any) -> None:
        self.views = _VIEWS[type(self).__name__].from_entry(parameters)

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        """Put the dict of views into ``sample["data"]``.

        Raises:
            ValueError: the image does not come from one of our sources.
        """
        source = sample["data"][0]
        if not isinstance(source, SourceImage):
            raise ValueError(
                f"{type(self).__name__}: expected it first in config.DATA.TRAIN.TRANSFORMS, and a "
                f"pirl_disk_* source in config.DATA.TRAIN.DATA_SOURCES"
            )
        if sample["data_valid"][0] == 1:
            rng = image_generator(source.seed, source.epoch, int(sample["data_idx"][0]))
            sample["data"] = self.views(source.pixels, rng)
        else:
            sample["data"] = self.views.placeholder()
        return sample

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> PIRLTransform:
        """Make the transform of a YAML entry."""
        return cls(**config)


for _name in _VIEWS:  # the host's registry has a class for each name
    globals()[_name] = type(_name, (PIRLTransform,), {"__module__": __name__})


def pirl_collator(batch: Sequence[dict[str, Any]]) -> dict[str, list[torch.Tensor]]:
    """Collate the samples of the PIRL transforms.

    Returns:
        What ``collate_views`` returns, each tensor in a list of one, as VISSL's collators return
        them; ``label`` is the image's row unless a pretext task has its own.
    """
    samples = [
        {
            "label": int(sample["data_idx"][0]),
            **sample["data"],
            "data_valid": int(sample["data_valid"][0]) == 1,
        }
        for sample in batch
    ]
    return {name: [values] for name, values in collate_views(samples).items()}
