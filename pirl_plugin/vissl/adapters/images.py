"""Our images, views and batches as VISSL data sources, transforms and a collate function."""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from classy_vision.dataset.transforms import ClassyTransform
from PIL import Image

from pirl_plugin.images import names
from pirl_plugin.images.columns import Columns
from pirl_plugin.images.image_dataset import collate_views
from pirl_plugin.images.opening import open_named
from pirl_plugin.images.reading import RGB, Reading
from pirl_plugin.images.source import ImageSource
from pirl_plugin.views.base import ImageViews, Views
from pirl_plugin.views.callables import CallableViews
from pirl_plugin.views.jigsaw import JigsawTask, JigsawViews, RotationJigsawViews
from pirl_plugin.views.pixels import as_image, image_generator
from pirl_plugin.views.rotation import RotationTask, RotationViews
from pirl_plugin.vissl.own_parts import import_own_part
from pirl_plugin.vissl.sections import size_of_transforms


class SourceImage(NamedTuple):
    """A decoded image with the keys for its random draws (its row in the data set is another key).

    Attributes:
        pixels: (C, H, W), uint8, uint16 or float32.
        seed: the run's seed.
        epoch: the epoch's number.
    """

    pixels: torch.Tensor
    seed: int
    epoch: int


class PIRLDiskDataset:
    """Any source in :data:`pirl_plugin.images.names.SOURCES`, with VISSL's constructor and methods.

    Yields ``SourceImage`` if the split's first transform is from this plugin. Otherwise, yields PIL
    images for RGB in uint8, and for others float32 tensors (C, H, W), in which white is 1 for
    uint8.

    Args:
        cfg: VISSL's configuration.
        data_source: the source's name.
        path: the source's folder or file.
        split: key of ``cfg["DATA"]``: ``TRAIN`` or ``TEST``.
        dataset_name: not used.

    Attributes:
        reading: how images are read; by default, as RGB in uint8.

    Raises:
        FileNotFoundError: ``path`` does not exist, or is a file instead of a folder.
        ValueError: it holds no image, or cannot be read.
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
        self._epoch = torch.zeros(1, dtype=torch.int64).share_memory_()
        self._yields_tensors = transforms[0].get("name") in names.TRANSFORMS
        self.source = open_split(cfg, data_source, path, split)
        self.reading = Reading(RGB, bool(cfg["DATA"].get("RGB")), options.get("NODATA"))
        self._size = size_of_transforms(transforms) or 224
        logging.root.info(f"{split}: {len(self.source)} images in {path}")

    def __len__(self) -> int:
        return len(self.source)

    def num_samples(self) -> int:
        """Return the number of images."""
        return len(self.source)

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the next epoch. Call this before the workers start."""
        self._epoch.fill_(epoch)

    def get_image_paths(self) -> list[str]:
        """Return the paths of all images, in order."""
        return self.source.paths()

    def __getitem__(self, index: int) -> tuple[SourceImage | Image.Image | torch.Tensor, bool]:
        """Read and decode one image.

        Args:
            index: row, in [0, len).

        Returns:
            ``(image, is_valid)``; an unreadable image is gray.
        """
        pixels, is_valid = self.source.load(index, self._size, self.reading)
        if self._yields_tensors:
            return SourceImage(pixels, self._seed, int(self._epoch)), is_valid
        pixel_type = self.reading.pixel_type
        if pixel_type == RGB:
            return as_image(pixels), is_valid
        return pixels.float() / pixel_type.white, is_valid


def open_split(cfg: Mapping[str, Any], data_source: str, path: str, split: str) -> ImageSource:
    """Open a split's source, with the split's own options."""
    options = cfg["DATA"][split]
    keys = ("IMAGE_COLUMN", "LABEL_COLUMN", "GROUP_COLUMN", "PATTERN")
    return open_named(
        data_source,
        path,
        split="train" if split == "TRAIN" else "test",
        remove_prefix=str(options.get("REMOVE_IMG_PATH_PREFIX") or ""),
        new_prefix=str(options.get("NEW_IMG_PATH_PREFIX") or ""),
        columns=Columns(*map(options.get, keys)),
    )


class PIRLTransform(ClassyTransform):
    """Replaces a sample's image by its views.

    VISSL finds a transform by its class name, so each kind of views has a class below. A transform
    takes the complete sample (``data``, ``data_idx``, ``data_valid``, ``label``), because the
    image's row is a key for the random draws. An unreadable image is gray; loss and bank ignore it.

    Args:
        **parameters: parameters for the views class.

    Raises:
        ValueError: a parameter is unknown or out of range.
    """

    views_class: type[Views]
    views: Views | CallableViews

    def __init__(self, **parameters: Any) -> None:
        self.views = self.views_class.from_entry(parameters)

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        """Put the views, the image's ``index`` and ``data_valid`` into ``sample["data"]``.

        The image is a :class:`SourceImage`. A pretext task's views include a ``label``.
        """
        source = sample["data"][0]
        index = int(sample["data_idx"][0])
        views = self.views(source.pixels, image_generator(source.seed, source.epoch, index))
        is_valid = int(sample["data_valid"][0]) == 1
        sample["data"] = {**views, "index": index, "data_valid": is_valid}
        return sample


class PIRLJigsaw(PIRLTransform):
    """I and nine shuffled patches."""

    views_class = JigsawViews


class PIRLRotation(PIRLTransform):
    """I and a rotated view."""

    views_class = RotationViews


class PIRLRotationJigsaw(PIRLTransform):
    """I and nine shuffled patches from a rotated crop."""

    views_class = RotationJigsawViews


class PIRLImage(PIRLTransform):
    """Only I, for NPID."""

    views_class = ImageViews


class PIRLOwn(PIRLTransform):
    """The user's own views.

    Args:
        part: ``module:name`` of a subclass of ``Views``, of another class whose instances are
            functions of an image, or of such a function.
        **parameters: arguments for the class, or more arguments for the function.
    """

    def __init__(self, part: str, **parameters: Any) -> None:
        own = import_own_part(part)
        if isinstance(own, type) and issubclass(own, Views):
            self.views = own.from_entry(parameters)
        elif isinstance(own, type):
            self.views = CallableViews(own(**parameters))
        else:
            self.views = CallableViews(functools.partial(own, **parameters))


class PredictJigsaw(PIRLTransform):
    """Nine patches, labeled with the permutation's number: the jigsaw baseline."""

    views_class = JigsawTask


class PredictRotation(PIRLTransform):
    """A rotated view, labeled with the rotation: the rotation baseline."""

    views_class = RotationTask


def pirl_collator(batch: Sequence[dict[str, Any]]) -> dict[str, list[torch.Tensor]]:
    """Collate samples from the PIRL transforms.

    Returns:
        Views with shape (B, …), ``patches`` with shape (n·B, 3, P, P), ``index`` (B,), a pretext
        task's ``label`` (B,), and ``data_valid`` (B,). Index and label of an unreadable image are
        −1. Each tensor is in a list of one, as in VISSL's collators.
    """
    collated = {}
    for name, values in collate_views([sample["data"] for sample in batch]).items():
        collated[name] = [values]
    return collated
