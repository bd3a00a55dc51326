"""Any map-style data set as a source: torchvision's, a list, the user's own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import IterableDataset

from pirl_plugin.images.classes import (
    MISSING_VALUES,
    Classes,
    NoLabels,
    class_name,
    name_classes,
)
from pirl_plugin.images.columns import BY_NAME, Columns, Entry, column_hint
from pirl_plugin.images.decode import READ_ERRORS, UnreadableImageError, read_file
from pirl_plugin.images.source import ImageSource
from pirl_plugin.system.failures import Refused
from pirl_plugin.views.pixels import as_pixels


class WrongItems(Refused):
    """No item in the data set is usable, whichever row is read."""


class Sample(dict[str, torch.Tensor]):
    """The views of one image in an ``ImageDataset``."""


class MapSource(ImageSource):
    """Any map-style data set of images.

    An item that raises any error counts as an unreadable image.

    Args:
        dataset: has ``len``; items are PIL images, arrays (H, W, C), tensors (C, H, W), paths,
            or tuples or dictionaries that contain one.
        columns: name or position of the image in an item, and label column; without the first, the
            image is ``image``, a similar name, or the only image.
        path: the data set's name in messages; None: its class name.

    Raises:
        ValueError: it is a stream, or a dictionary of splits, or has no items.
    """

    kind = "data set"

    def __init__(
        self,
        dataset: Any,
        columns: Columns = BY_NAME,
        path: str | None = None,
    ) -> None:
        kind = type(dataset).__name__
        is_map = hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
        if not is_map or isinstance(dataset, (Mapping, IterableDataset)):
            raise Refused(
                f"data: expected a map-style data set, with len(data) and data[row], got a {kind}. "
                f"Pass a single split, loaded without streaming, because each image has a row in "
                f"the memory bank."
            )
        super().__init__(path or kind, (Entry(str(row)) for row in range(len(dataset))))
        self.dataset = dataset
        self._items = dataset
        self._columns = columns
        self._key: Any = columns.image
        if columns.group is not None:
            for value in self._group_values(columns.group):
                self._groups.append(class_name(value, MISSING_VALUES))

    def path_of(self, row: int) -> str:
        """Return ``CLASS[ROW]``."""
        return f"{self.path}[{row}]"

    def name_of(self, row: int) -> str:
        """Return the item's number and the image's column, as an item may have several."""
        return f"{row} {self._key}"

    def files(self) -> list[str]:
        """Return no files: the images are in memory."""
        return []

    def read(self, row: int) -> bytes | bytearray | torch.Tensor:
        """Return the content of an image's file, or an item's pixels, ``(C, H, W)``.

        Raises:
            OSError: the file cannot be read.
            WrongItems: the item has several images without a recognized name, or contains views.
            UnreadableImageError: the data set raises an error for the item, or it has no image.
        """
        try:
            image = self._image_in(self._items[int(row)])
            if isinstance(image, (bytes, bytearray)):
                return image
            return as_pixels(image)
        except (*READ_ERRORS, WrongItems):
            raise
        except Exception as error:  # data sets and their decoders raise any
            name = "" if isinstance(error, Refused) else f"{type(error).__name__}: "
            raise UnreadableImageError(f"{name}{error}") from error

    def _image_in(self, item: Any) -> Any:
        """Return the image in an item: pixels, or the content of the file.

        Raises:
            OSError: the file cannot be read.
            WrongItems: the item has several images without a recognized name, or contains views.
            UnreadableImageError: it has no image.
        """
        if isinstance(item, Sample):  # results for random views would be silently wrong
            raise WrongItems(
                f"the items in {self.path} are views from an ImageDataset. Pass the ImageDataset "
                f"itself, or a Subset of it."
            )
        if isinstance(item, (tuple, list)):
            item = dict(enumerate(item))
        if isinstance(item, Mapping):
            item = item[self._key_in(item)]
        if isinstance(item, Mapping):  # encoded, from Hugging Face
            item = item["bytes"] or item["path"]
        if item is None:
            raise UnreadableImageError("the item has no image")
        return self._read_file(os.fspath(item)) if isinstance(item, (str, os.PathLike)) else item

    def _read_file(self, path: str) -> bytearray:
        """Read a file that an item names; the user chose it."""
        return read_file(path)

    def _key_in(self, item: Mapping[Any, Any]) -> Any:
        """Return the key for the image in an item."""
        if self._key is not None:
            return self._key
        paths = [key for key in item if isinstance(item[key], (str, os.PathLike))]
        images = [key for key in item if _is_image(item[key])] or paths
        names = [name for name in item if isinstance(name, str)]
        key = self._columns.find("image", names, self.path, images)
        if key is None and images:
            raise WrongItems(f"{self.path}: {column_hint('image', images)}")
        if key is None:
            raise UnreadableImageError("the item has no image")
        return key

    def _group_values(self, name: str) -> list[Any]:
        """Return the values in the data set's attribute with the group column's name."""
        return list(np.asarray(getattr(self.dataset, name)).tolist())

    def _find_classes(self) -> Classes:
        """Return the classes in ``targets`` or ``labels``, as in torchvision's data sets.

        Raises:
            NoLabels: the data set has neither.
        """
        values = getattr(self.dataset, "targets", getattr(self.dataset, "labels", None))
        if values is None or callable(values):
            raise NoLabels(
                f"{self.path} has no labels. Give it an attribute targets or labels with one class "
                f"per item."
            )
        labels = np.asarray(values).tolist()
        names = getattr(self.dataset, "classes", None)
        order = list(map(str, names)) if isinstance(names, (list, tuple)) else []
        if order and all(isinstance(label, int) and label < len(order) for label in labels):
            labels = [order[label] if label >= 0 else None for label in labels]
        return name_classes(labels, order, self.path)


def _is_image(value: Any) -> bool:
    is_array = isinstance(value, (torch.Tensor, np.ndarray)) and value.ndim > 1
    return is_array or isinstance(value, Image.Image)
