"""Sources of images: folders, lists and any data set of images."""

from __future__ import annotations

import functools
import inspect
import logging
import os
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from pkgutil import resolve_name
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from pirl_plugin.failures import MissingFile, Refused
from pirl_plugin.images.decode import UnreadableImageError, decode_image, read_file
from pirl_plugin.images.folders import class_folders, find_images
from pirl_plugin.images.names import (
    DISK_FILELIST,
    DISK_FOLDER,
    DISK_HF,
    DISK_SHARDS,
    INDEX,
    SOURCES,
)
from pirl_plugin.images.shared import PathTable, SharedArray
from pirl_plugin.views.pixels import as_pixels

GREY = 128
_IMAGES = (Image.Image, torch.Tensor, np.ndarray, Mapping)  # Mapping: encoded, from Hugging Face


class ImageSource:
    """A source that reads and decodes each image once.

    A new source is a subclass. It finds the images and their labels, and passes them to this
    constructor.

    An unreadable file yields a grey image and ``False``. The first loader worker that reads it logs
    one warning with its path and the reason.

    Args:
        path: the user's folder or file.
        images: paths of the images, relative to ``root``.
        root: folder of the relative paths; ``path`` itself if None.
        labels: int64 (N,), or (N, classes), if the source has labels.

    Attributes:
        grey_size: side of the image that replaces an unreadable one, pixels.

    Raises:
        ValueError: there are fewer than two images.
    """

    grey_size = 224
    classes: list[str] | None = None  # names of the labels 0, 1, … of a list with names

    def __init__(
        self,
        path: str | os.PathLike[str],
        images: Sequence[str],
        root: str | None = None,
        labels: NDArray[np.int64] | None = None,
    ) -> None:
        self.path = os.fspath(path)
        self._root = self.path if root is None else root
        self._images = images
        self._labels = labels
        if len(images) < 2:
            raise Refused(f"{self.path} holds {len(images)} images: expected at least 2")
        # One byte per image, not one bit: workers that write to the same byte would lose bits.
        self._unreadable = SharedArray(np.zeros(len(images), np.uint8))

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, row: int) -> tuple[torch.Tensor, bool]:
        """Read and decode one image.

        Args:
            row: in [0, len).

        Returns:
            uint8 (3, H, W), RGB, and whether it could be read; if not, it is grey.
        """
        try:
            return self.pixels(row), True
        except (OSError, UnreadableImageError, MemoryError) as error:
            if not self._unreadable.array[row]:
                self._unreadable.array[row] = 1
                reason = str(error) or "there is too little memory"
                where = _printable(self.path_of(row))
                logging.root.warning(f"Image {row}, {where}: skipped, it cannot be read: {reason}")
        shape = (3, self.grey_size, self.grey_size)
        return torch.full(shape, GREY, dtype=torch.uint8), False

    def pixels(self, row: int) -> torch.Tensor:
        """Return one image, uint8 (3, H, W).

        Raises:
            OSError: it cannot be read.
            UnreadableImageError: it cannot be decoded.
        """
        return decode_image(self.read(row))

    def read(self, row: int) -> bytes | bytearray:
        """Return the content of one image's file. Raises ``OSError`` if it cannot be read."""
        return read_file(self.path_of(row))

    def path_of(self, row: int) -> str:
        """Return the path of one image."""
        return os.path.join(self._root, self._images[row])

    def paths(self) -> list[str]:
        """Return the paths of all images, in order."""
        return [self.path_of(row) for row in range(len(self))]

    def labels(self) -> NDArray[np.int64]:
        """Return the class of each image, int64 (N,), or (N, classes) if it may have several.

        Raises:
            ValueError: this source has no labels.
        """
        if self._labels is None:
            raise Refused(f"{self.path} has no labels: expected a source with labels")
        return self._labels

    def unreadable_paths(self) -> list[str]:
        """Return the unreadable paths that this process and its loader workers have found."""
        return [_printable(self.path_of(int(row))) for row in self._unreadable.array.nonzero()[0]]


class FolderSource(ImageSource):
    """The images below a folder; its subfolders, if any, are the classes.

    One warning counts the skipped folders by name and the skipped files by extension.

    Raises:
        FileNotFoundError: there is no such folder.
        ValueError: it holds fewer than two images.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if not os.path.isdir(path):
            raise MissingFile(
                f"{os.fspath(path)}: expected a folder or a list of images that exists"
            )
        skipped: Counter[str] = Counter()
        images = PathTable(find_images(os.fspath(path), skipped))
        if skipped:
            found = ", ".join(f"{_printable(name)} ({count})" for name, count in skipped.items())
            remedy = "; pip install pillow-heif reads .heic" if ".heic" in skipped else ""
            shown = textwrap.shorten(found, 1000, placeholder=" …")
            _warn_once(f"{os.fspath(path)}: skipped: {shown}{remedy}")
        super().__init__(path, images)

    def labels(self) -> NDArray[np.int64]:
        """Return the number of each image's first-level subfolder in name order: int64 (N,).

        Images in the folder itself have class 0, or -1 (no class) if there are subfolders.
        """
        numbers = {name: number for number, name in enumerate(class_folders(self.path))}
        numbers[""] = -1 if numbers else 0
        tops = (top if rest else "" for top, _, rest in (p.partition(os.sep) for p in self._images))
        return np.fromiter((numbers[top] for top in tops), np.int64, len(self))


class MapSource(ImageSource):
    """Any map-style data set of images: torchvision's, Hugging Face's, ``Subset``, a list.

    Args:
        dataset: has ``len``; its items are PIL images, uint8 tensors or arrays, paths, or tuples
            or dictionaries with one.
        key: name or position of the image in an item; None: ``image``, or else the first image.
    """

    def __init__(self, dataset: Any, key: int | str | None = None) -> None:
        super().__init__(type(dataset).__name__, range(len(dataset)))  # type: ignore[arg-type]
        self.dataset, self._key = dataset, key

    def path_of(self, row: int) -> str:
        """Return ``CLASS[ROW]``."""
        return f"{self.path}[{row}]"

    def pixels(self, row: int) -> torch.Tensor:
        """Return one image, uint8 (3, H, W)."""
        item = self.dataset[int(row)]
        if isinstance(item, (tuple, list)):
            item = dict(enumerate(item))
        if isinstance(item, Mapping):
            first = next((v for v in item.values() if isinstance(v, _IMAGES)), None)
            item = item.get("image", first) if self._key is None else item[self._key]
        if isinstance(item, Mapping):  # from Hugging Face, with decode=False
            item = item["bytes"] or item["path"]
        if isinstance(item, (str, os.PathLike)):
            item = read_file(os.fspath(item))
        return decode_image(item) if isinstance(item, (bytes, bytearray)) else as_pixels(item)


def open_source(where: Any, name: str | None = None, **options: Any) -> ImageSource:
    """Open a source of images.

    Args:
        where: a folder (of images, of tars, or of a Hugging Face data set), a file that lists
            images, a list of folders or images, a map-style data set, or a source.
        name: a key of ``names.SOURCES``; None: inferred from the path.
        **options: arguments of the source's constructor, such as ``key`` of a data set's items;
            unknown arguments are ignored.

    Raises:
        FileNotFoundError: there is no such path.
        ValueError: there is no source of this name, or fewer than two images.
    """
    if isinstance(where, ImageSource):
        return where
    if isinstance(where, (str, os.PathLike)):
        name = name or _kind(os.fspath(where))
        if name not in SOURCES:
            raise Refused(f"data source {name!r}: expected one of {', '.join(SOURCES)}")
        source: type[ImageSource] = resolve_name(SOURCES[name])
        accepted = inspect.signature(source).parameters
        return source(where, **{k: value for k, value in options.items() if k in accepted})
    if isinstance(where, (list, tuple)) and where and isinstance(where[0], (str, os.PathLike)):
        if not any(map(os.path.exists, where[:8])):
            raise MissingFile(f"{where[0]}: expected a folder or an image that exists")
        if any(map(os.path.isdir, where[:8])):
            where = chain.from_iterable(FolderSource(folder).paths() for folder in where)
        return ImageSource("the list", PathTable(map(os.fspath, where)), root="")
    return MapSource(where, options.get("key"))


def _kind(path: str) -> str:
    """Infer the source of a path, and return its name."""
    if os.path.isfile(path) and not path.endswith((".parquet", ".arrow", ".tar", ".gz", ".tgz")):
        return DISK_FILELIST
    names = os.listdir(path) if os.path.isdir(path) else [path]
    if INDEX in names or any(name.endswith((".tar", ".tar.gz", ".tgz")) for name in names):
        return DISK_SHARDS
    tables = any(name.endswith((".arrow", ".parquet")) for name in names)
    return DISK_HF if tables or "dataset_dict.json" in names else DISK_FOLDER


@functools.cache
def _warn_once(message: str) -> None:
    logging.root.warning(message)


def _printable(path: str) -> str:
    """Return a path in UTF-8, with other bytes escaped."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
