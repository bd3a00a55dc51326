"""Any map-style data set as a source: torchvision's, Hugging Face's, ``Subset``, a list."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.utils.data import ConcatDataset, IterableDataset, Subset

from pirl_plugin.images import hugging_face
from pirl_plugin.images.decode import UnreadableImageError, decode_image, read_file
from pirl_plugin.images.source import ImageSource
from pirl_plugin.system.failures import Refused
from pirl_plugin.views.pixels import as_pixels

_IMAGES = (Image.Image, torch.Tensor, np.ndarray, Mapping)  # Mapping: encoded, from Hugging Face


def _images_then_paths(values: Collection[Any]) -> Iterator[Any]:
    yield from (value for value in values if isinstance(value, _IMAGES))
    yield from (value for value in values if isinstance(value, (str, os.PathLike)))


class MapSource(ImageSource):
    """Any map-style data set of images.

    An item that cannot be read, whatever the error, counts as an unreadable image.

    Args:
        dataset: has ``len``; its items are PIL images, uint8 tensors or arrays, paths, or tuples
            or dictionaries with one.
        key: name or position of the image in an item; None: ``image``, or else the first image.

    Raises:
        ValueError: it is a stream, or a dictionary of splits, or has fewer than two items.
    """

    def __init__(self, dataset: Any, key: int | str | None = None) -> None:
        kind = type(dataset).__name__
        if isinstance(dataset, Mapping):
            raise Refused(
                f"data = {kind} with {', '.join(map(str, dataset))}: expected one data set; give "
                f"one of its splits"
            )
        is_map = hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
        if not is_map or isinstance(dataset, IterableDataset):
            raise Refused(
                f"data = {kind}: expected a map-style data set, with len(data) and data[row], as "
                f"each image has a row in the memory bank; load the data without streaming, or "
                f"give a list of the images"
            )
        # Its "paths" are the numbers of the items; path_of makes names of them.
        super().__init__(kind, range(len(dataset)))  # type: ignore[arg-type]
        self.dataset = dataset
        self._items = dataset
        self._key = key
        if hugging_face.is_plain(dataset):
            column = hugging_face.image_column(dataset)
            if column is not None and key in (None, column):
                self._items = hugging_face.encoded_images(dataset, column)
                self._key = column

    def path_of(self, row: int) -> str:
        """Return ``CLASS[ROW]``."""
        return f"{self.path}[{row}]"

    def pixels(self, row: int) -> torch.Tensor:
        """Return one image, uint8 (3, H, W).

        Raises:
            OSError: its file cannot be read.
            UnreadableImageError: the data set raises an error for the item, or it has no image.
        """
        try:
            image = self._image_in(self._items[int(row)])
            if isinstance(image, (str, os.PathLike)):
                image = read_file(os.fspath(image))
            if isinstance(image, (bytes, bytearray)):
                return decode_image(image, self.needed_side)
            return as_pixels(image)
        except (OSError, UnreadableImageError, MemoryError):
            raise
        except Refused as error:
            raise UnreadableImageError(str(error)) from error
        except Exception as error:  # data sets and their decoders raise any
            raise UnreadableImageError(f"{type(error).__name__}: {error}") from error

    def read(self, row: int) -> bytes | bytearray:
        """Return the content of one image's file, if the items are files.

        Raises:
            UnreadableImageError: the item holds pixels.
        """
        image = self._image_in(self._items[int(row)])
        if isinstance(image, (str, os.PathLike)):
            return read_file(os.fspath(image))
        if isinstance(image, (bytes, bytearray)):
            return image
        raise UnreadableImageError(f"{self.path_of(row)} is a {type(image).__name__}, not a file")

    def _image_in(self, item: Any) -> Any:
        """Return the image in an item: pixels, encoded bytes or a path."""
        if isinstance(item, (tuple, list)):
            item = dict(enumerate(item))
        if isinstance(item, Mapping):
            if self._key is not None:
                item = item[self._key]
            elif "image" in item:
                item = item["image"]
            else:
                item = next(_images_then_paths(item.values()), None)
        if isinstance(item, Mapping):  # encoded, from Hugging Face
            item = item["bytes"] or item["path"]
        if item is None:
            raise UnreadableImageError("the item has no image")
        return item

    def labels(self) -> NDArray[np.int64]:
        """Return the class of each item, int64 (N,), as far as the data set lists them.

        It is known for Hugging Face's data sets with a column of classes, torchvision's with
        ``targets`` or ``labels``, and for ``Subset`` and ``ConcatDataset`` of them.

        Raises:
            ValueError: the data set has no such list.
        """
        if self._labels is None:
            self._labels = _labels_of(self.dataset)
        return self._labels


def _labels_of(dataset: Any) -> NDArray[np.int64]:
    if isinstance(dataset, Subset):
        return _labels_of(dataset.dataset)[np.asarray(dataset.indices, np.int64)]
    if isinstance(dataset, ConcatDataset):
        return np.concatenate([_labels_of(part) for part in dataset.datasets])
    if isinstance(dataset, ImageSource):
        return dataset.labels()
    if hugging_face.is_plain(dataset):
        return hugging_face.labels(dataset)
    labels = getattr(dataset, "targets", getattr(dataset, "labels", None))
    if labels is None or callable(labels):
        raise Refused(
            f"{type(dataset).__name__} has no labels: expected an attribute targets or labels with "
            f"the class of each item"
        )
    if transform := getattr(dataset, "target_transform", None):
        labels = [transform(label) for label in labels]
    return np.asarray(labels, np.int64)
