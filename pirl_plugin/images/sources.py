"""Where images come from: a folder, any data set of images; and how to open it."""

from __future__ import annotations

import importlib
import inspect
import logging
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from pirl_plugin.images.decode import UnreadableImageError, decode_image, read_file
from pirl_plugin.images.folders import class_folders, describe_skipped, find_images
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
_log = logging.root  # whose handlers write the host's log


class ImageSource:
    """Images, each of which is read and decoded once.

    A subclass finds the images and their labels and hands them to this constructor; that is all
    that a new source needs.

    A file that cannot be read or decoded yields a grey image and ``False``, and is named with the
    reason in one warning, by whichever loader worker meets it first, in whichever epoch.

    Args:
        path: what the user named: a folder or a file.
        images: paths of the images, relative to ``root``.
        root: folder that the paths are relative to; ``path`` itself if None.
        labels: int64 (N,), or (N, classes), if the source has some.
        grey_size: side of the image that takes the place of one that cannot be read, pixels.

    Raises:
        ValueError: there are fewer than two images.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        images: Sequence[str],
        root: str | None = None,
        labels: NDArray[np.int64] | None = None,
        grey_size: int = 224,
    ) -> None:
        self.path = os.fspath(path)
        self._root = self.path if root is None else root
        self._images = images
        self._labels = labels
        self._grey_size = grey_size
        if len(images) < 2:
            raise ValueError(f"{self.path} holds {len(images)} images: expected at least 2")
        # A byte an image, not a bit: workers that write into one byte lose each other's bits.
        self._unreadable = SharedArray(np.zeros(len(images), np.uint8))

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, row: int) -> tuple[torch.Tensor, bool]:
        """Read and decode one image.

        Args:
            row: in [0, len).

        Returns:
            uint8 (3, H, W), RGB, and whether it could be read; it is grey where it could not.
        """
        try:
            return self.pixels(row), True
        except (OSError, UnreadableImageError, MemoryError) as error:
            self._report(int(row), error)
        shape = (3, self._grey_size, self._grey_size)
        return torch.full(shape, GREY, dtype=torch.uint8), False

    def __iter__(self) -> Iterator[tuple[torch.Tensor, bool]]:
        return (self[row] for row in range(len(self)))

    def pixels(self, row: int) -> torch.Tensor:
        """One image, uint8 (3, H, W).

        Raises:
            OSError: it cannot be read.
            UnreadableImageError: it cannot be decoded.
        """
        return decode_image(self.read(row))

    def read(self, row: int) -> bytes | bytearray:
        """Content of one image's file.

        Raises:
            OSError: it cannot be read.
        """
        try:
            return read_file(self.path_of(row))
        except ValueError as error:  # a NUL byte in the path
            raise OSError(str(error)) from None

    def path_of(self, row: int) -> str:
        """Path of one image."""
        return os.path.join(self._root, self._images[row])

    def file_of(self, row: int) -> str:
        """Path of the file that holds one image: its own, or an archive."""
        return self.path_of(row)

    def paths(self) -> list[str]:
        """Paths of all images, in order."""
        return [self.path_of(row) for row in range(len(self))]

    def labels(self) -> NDArray[np.int64]:
        """Class of each image, int64 (N,), or (N, classes) where an image may have several.

        Raises:
            ValueError: this source has no labels.
        """
        if self._labels is None:
            raise ValueError(f"{self.path} has no labels: expected a source with labels")
        return self._labels

    def class_numbers(self) -> dict[str, int]:
        """Number of each class by its name; empty where classes have numbers alone."""
        return {}

    @property
    def num_unreadable(self) -> int:
        """Number of files found unreadable so far, by this process and its loader workers."""
        return int(np.count_nonzero(self._unreadable.array))

    def unreadable_paths(self) -> list[str]:
        """Paths of the files found unreadable so far, as :attr:`num_unreadable`."""
        return [_printable(self.path_of(int(row))) for row in self._unreadable.array.nonzero()[0]]

    def _report(self, row: int, error: Exception) -> None:
        if not self._unreadable.array[row]:
            self._unreadable.array[row] = 1
            reason = error if str(error) else "there is too little memory"
            _log.warning(
                f"Image {row}, {_printable(self.path_of(row))}: cannot be read: {reason}; it is "
                f"left out"
            )


class FolderSource(ImageSource):
    """The images below a folder, in subfolders, its classes, or not.

    What is not read is counted by kind in the log, with what to do about it.

    Raises:
        FileNotFoundError: there is no such folder.
        ValueError: it holds fewer than two images.
    """

    def __init__(self, path: str | os.PathLike[str], grey_size: int = 224) -> None:
        if not os.path.isdir(path):
            raise FileNotFoundError(
                f"{os.fspath(path)} is not a folder that exists: expected a folder of images"
            )
        skipped: Counter[str] = Counter()
        images = PathTable(find_images(os.fspath(path), skipped))
        describe_skipped(os.fspath(path), skipped, _log)
        if len(images) < 2 and skipped[".tar"]:
            raise ValueError(f"{os.fspath(path)} holds tars: expected images, or {DISK_SHARDS}")
        super().__init__(path, images, grey_size=grey_size)

    def labels(self) -> NDArray[np.int64]:
        """Index of each image's first-level subfolder, by name: int64 (N,).

        Images that lie in the folder itself are class 0; beside the folders of classes they have
        none, -1.
        """
        numbers = self.class_numbers()
        tops = (top if rest else "" for top, _, rest in (p.partition(os.sep) for p in self._images))
        numbers[""] = -1 if numbers else 0
        return np.fromiter((numbers[top] for top in tops), np.int64, len(self))

    def class_numbers(self) -> dict[str, int]:
        """Number of each class by its folder, those without an image included."""
        return {name: number for number, name in enumerate(class_folders(self.path))}


class MapSource(ImageSource):
    """Any map-style data set of images: torchvision's, Hugging Face's, ``Subset``, a list.

    Args:
        dataset: has ``len``, and items that are PIL images, uint8 tensors or arrays, paths, or
            tuples or dictionaries that hold one.
        key: place of the image in an item, a number or a name; None for 0 in tuples, and for
            ``image`` or the first image in dictionaries.
        grey_size: side of the image that takes the place of one that cannot be read, pixels.
    """

    def __init__(self, dataset: Any, key: int | str | None = None, grey_size: int = 224) -> None:
        if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
            raise ValueError(
                f"source is a {type(dataset).__name__}: expected a path, or a data set with len() "
                f"and dataset[row]"
            )
        super().__init__(type(dataset).__name__, range(len(dataset)), grey_size=grey_size)  # type: ignore[arg-type]
        self.dataset, self._key = dataset, key

    def path_of(self, row: int) -> str:
        """``CLASS[ROW]``, or the path where the items are paths."""
        paths = isinstance(self.dataset, (list, tuple)) and isinstance(self.dataset[row], str)
        return str(self.dataset[row]) if paths else f"{self.path}[{row}]"

    def pixels(self, row: int) -> torch.Tensor:
        """One image, uint8 (3, H, W)."""
        item = self.dataset[row]
        if isinstance(item, Mapping):
            item = item[self._key or _image_key(item)]
        elif isinstance(item, (tuple, list)):
            item = item[int(self._key or 0)]
        if isinstance(item, Mapping):  # Hugging Face's, with decode=False
            item = item["bytes"] or item["path"]
        if isinstance(item, (str, os.PathLike)):
            item = read_file(os.fspath(item))
        return decode_image(item) if isinstance(item, (bytes, bytearray)) else as_pixels(item)


def _image_key(item: Mapping[Any, Any]) -> Any:
    if "image" in item:
        return "image"
    kinds = (Image.Image, torch.Tensor, np.ndarray)
    found = [key for key, value in item.items() if isinstance(value, kinds)]
    if not found:
        raise ValueError(f"an item has {', '.join(map(str, item))}: name the image by key=")
    return found[0]


class _Folders(ImageSource):
    """Several sources one after another."""

    def __init__(self, sources: Sequence[ImageSource]) -> None:
        self._sources = sources
        self._firsts = np.cumsum([0, *map(len, sources)])
        path = os.pathsep.join(source.path for source in sources)
        super().__init__(path, range(int(self._firsts[-1])))  # type: ignore[arg-type]

    def _at(self, row: int) -> tuple[ImageSource, int]:
        part = int(np.searchsorted(self._firsts, row, side="right")) - 1
        return self._sources[part], row - int(self._firsts[part])

    def read(self, row: int) -> bytes | bytearray:
        """Content of one image's file."""
        source, inner = self._at(row)
        return source.read(inner)

    def path_of(self, row: int) -> str:
        """Path of one image."""
        source, inner = self._at(row)
        return source.path_of(inner)


def open_source(
    where: Any, name: str | None = None, key: int | str | None = None, **options: Any
) -> ImageSource:
    """Open a source of images.

    Args:
        where: a folder (of images, of tars, or of a Hugging Face data set), a file that lists
            images, a list of folders or of images, a map-style data set, or a source.
        name: a key of ``names.SOURCES``; None for what lies at the path.
        key: of the image in the items of a data set.
        **options: for the source's constructor; those that it does not take are left out.

    Raises:
        FileNotFoundError: there is no such path.
        ValueError: there is no source of this name, or fewer than two images.
    """
    if isinstance(where, ImageSource):
        return where
    if isinstance(where, (str, os.PathLike)):
        name = name or _kind(os.fspath(where))
        if name not in SOURCES:
            raise ValueError(f"data source {name!r}: expected one of {', '.join(SOURCES)}")
        module, _, attribute = SOURCES[name].partition(":")
        made: type[ImageSource] = getattr(importlib.import_module(module), attribute)
        taken = inspect.signature(made).parameters
        return made(where, **{k: value for k, value in options.items() if k in taken})
    if isinstance(where, (list, tuple)) and where and isinstance(where[0], (str, os.PathLike)):
        if os.path.isdir(where[0]):
            return _Folders([open_source(each, **options) for each in where])
        return ImageSource("", PathTable(map(os.fspath, where)), root="")
    return MapSource(where, key)


def _kind(path: str) -> str:
    """The name of the source that reads what lies at a path."""
    if path.endswith((".tar", ".tar.gz", ".tgz")):
        raise ValueError(f"{path} is a tar: name the folder of the tars, unpacked with gunzip")
    if os.path.isfile(path) and not path.endswith((".parquet", ".arrow")):
        return DISK_FILELIST
    names = os.listdir(path) if os.path.isdir(path) else [path]
    if INDEX in names or any(name.endswith((".tar", ".tar.gz", ".tgz")) for name in names):
        return DISK_SHARDS
    tables = any(name.endswith((".arrow", ".parquet")) for name in names)
    return DISK_HF if tables or "dataset_dict.json" in names else DISK_FOLDER


def _printable(path: str) -> str:
    """A path as one line of UTF-8: its bytes that are none are escaped, and its line breaks."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
