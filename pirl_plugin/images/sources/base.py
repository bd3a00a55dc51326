"""What all sources share: reading, decoding, and keeping count of what cannot be read."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from pirl_plugin.images.decode import UnreadableImageError, decode_image
from pirl_plugin.images.read import read_file
from pirl_plugin.images.shared_bytes import SharedBytes

GREY = 128
_log = logging.getLogger(__name__)


class ImageSource:
    """Images that are read from disk, each once, and decoded once.

    A subclass finds the images and their labels and hands them to this constructor; that is all
    that a new source needs.

    A file that cannot be read or decoded yields a grey image and ``False``, and is named with the
    reason in one warning, by whichever loader worker meets it first, in whichever epoch; by two
    where they meet it at the same moment.

    Args:
        path: what the user named: a folder or a file.
        images: paths of the images, relative to ``root``.
        root: folder that the paths are relative to; ``path`` itself if None.
        labels: int64 (N,), or (N, classes), if the source has some.
        grey_size: side of the image that takes the place of one that cannot be read, pixels.

    Raises:
        ValueError: there are fewer than two images.

    Attributes:
        wanted: what ``path`` should be, for messages; a subclass says it.
        path: as given.
    """

    wanted: ClassVar[str] = "a folder or a file that names images"

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
            found = "no image" if len(images) == 0 else "1 image, and at least 2 are needed"
            raise ValueError(self.complaint(f"holds {found}"))
        # A byte an image, not a bit: workers that write into one byte lose each other's bits.
        self._unreadable = SharedBytes(len(images))
        _log.info(f"{len(images)} images in {self.path}")

    @classmethod
    def problem(cls, path: str | os.PathLike[str], found: str) -> str:
        """One sentence: what was found at ``path``, and what was expected."""
        return f"{os.fspath(path)} {found}: expected {cls.wanted}"

    def complaint(self, found: str) -> str:
        """:meth:`problem` of this source's path."""
        return self.problem(self.path, found)

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
            return decode_image(self.read(row)), True
        except (OSError, ValueError, MemoryError) as error:  # ValueError: a NUL byte in the path
            self._report(int(row), error)
        shape = (3, self._grey_size, self._grey_size)
        return torch.full(shape, GREY, dtype=torch.uint8), False

    def __iter__(self) -> Iterator[tuple[torch.Tensor, bool]]:
        return (self[row] for row in range(len(self)))

    def read(self, row: int) -> bytes | bytearray:
        """Content of one image's file.

        Raises:
            OSError: it cannot be read.
        """
        return read_file(self.path_of(row))

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

    def class_root(self) -> str | None:
        """Folder whose subfolders number the classes, also those without an image; None if none.

        Raises:
            ValueError: the classes should be those of folders, and cannot be.
        """
        return None

    def class_numbers(self) -> dict[str, int]:
        """Number of each class by its name; empty where classes have numbers alone."""
        return {}

    @property
    def num_unreadable(self) -> int:
        """Number of files found unreadable so far, by this process and its loader workers."""
        return int(np.count_nonzero(self._unreadable.array))

    def unreadable_paths(self) -> list[str]:
        """Paths of the files found unreadable so far, as :attr:`num_unreadable`."""
        return [
            _printable(self.path_of(int(row))) for row in np.flatnonzero(self._unreadable.array)
        ]

    def _report(self, row: int, error: Exception) -> None:
        if self._unreadable.array[row]:
            return
        self._unreadable.array[row] = 1
        reason: Any = error if isinstance(error, UnreadableImageError) else _cause(error)
        path = _printable(self.path_of(row))
        _log.warning(f"Image {row}, {path}: {reason}. A blank image takes its place.")


def _printable(path: str) -> str:
    """A path as one line of UTF-8: its bytes that are none are escaped, and its line breaks."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _cause(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "cannot be read: there is too little memory"
    return f"cannot be read: {error}"
