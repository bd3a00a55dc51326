"""The base class of all sources: it reads and decodes each image once, and counts bad ones."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset, get_worker_info

from pirl_plugin.images.classes import Classes, NoLabels
from pirl_plugin.images.decode import NEEDED_SIDE, UnreadableImageError, decode_image, read_file
from pirl_plugin.system.failures import Refused
from pirl_plugin.system.files import digest_of
from pirl_plugin.system.text import printable

_GREY = 128  # level of the image that replaces an unreadable one
_GREY_SIDE = 224  # pixels
_MOST_WORKERS = 1024
_NO_ROW = -1


class DecodedImage(NamedTuple):
    """Pixels uint8 (3, H, W), RGB, and whether the image could be read; if not, it is grey."""

    pixels: torch.Tensor
    is_readable: bool


class ImageSource(Dataset[tuple[torch.Tensor, bool]]):
    """A source that reads and decodes each image once.

    A new source is a subclass. It finds the images and passes them to this constructor; its method
    ``_find_classes`` names their classes.

    An unreadable file yields a grey image and ``False``. The first loader worker that reads it logs
    one warning with its path and the reason.

    Args:
        path: the user's folder or file.
        images: paths of the images, relative to ``root``.
        root: folder of the relative paths; ``path`` itself if None.

    Raises:
        ValueError: there is no image.
    """

    kind = "images"
    """Kind of data, for messages."""

    def __init__(
        self, path: str | os.PathLike[str], images: Iterable[str], root: str | None = None
    ) -> None:
        self.path = os.fspath(path)
        self._root = self.path if root is None else root
        # An array of bytes, not a list: forked workers would copy the strings of a list.
        self._images = np.array(list(map(os.fsencode, images)), np.bytes_)
        if len(self._images) == 0:
            raise Refused(f"{self.path} holds no image: expected at least one")
        # Loader workers write to these: whether each image was found to be unreadable, and the row
        # that this process reads now, and the row that each worker reads.
        self._unreadable = torch.zeros(len(self._images), dtype=torch.bool).share_memory_()
        self._rows_being_read = torch.full((1 + _MOST_WORKERS,), _NO_ROW).share_memory_()

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, row: int) -> DecodedImage:
        """Read and decode one image for views of 224 px: see :meth:`load`."""
        return self.load(row, 224)

    def load(self, row: int, size: int) -> DecodedImage:
        """Read and decode one image.

        Args:
            row: in [0, len).
            size: side of the views, pixels. Large JPEGs are decoded at a smaller size that leaves
                these views as sharp as :data:`~pirl_plugin.images.decode.NEEDED_SIDE` leaves views
                of 224 px.

        Returns:
            Its pixels, and whether it could be read.
        """
        try:
            with self.reading(row):
                image = self.read(row)
                if not isinstance(image, torch.Tensor):
                    image = decode_image(image, round(NEEDED_SIDE * size / 224))
                return DecodedImage(image, True)
        except (OSError, UnreadableImageError, MemoryError) as error:
            if not self._unreadable[row]:
                self._unreadable[row] = True
                reason = str(error) or "there is too little memory"
                path = printable(self.path_of(row))
                logging.root.warning(f"Image {row}, {path}: skipped, it cannot be read: {reason}")
        grey = torch.full((3, _GREY_SIDE, _GREY_SIDE), _GREY, dtype=torch.uint8)
        return DecodedImage(grey, False)

    @contextmanager
    def reading(self, row: int) -> Iterator[None]:
        """Let :meth:`being_read` name an image while it is read or decoded."""
        worker = get_worker_info()
        reader = 0 if worker is None else min(1 + worker.id, _MOST_WORKERS)
        self._rows_being_read[reader] = row
        try:
            yield
        finally:
            self._rows_being_read[reader] = _NO_ROW

    def being_read(self) -> list[str]:
        """Return the paths that this process and its loader workers read at this moment."""
        rows = self._rows_being_read.tolist()  # a copy: other processes write the tensor
        return [printable(self.path_of(row)) for row in rows if row != _NO_ROW]

    def read(self, row: int) -> bytes | bytearray | torch.Tensor:
        """Return the content of one image's file, or its pixels if it has no file.

        Raises:
            OSError: it cannot be read.
            UnreadableImageError: it is no image.
        """
        return read_file(self.path_of(row))

    def path_of(self, row: int) -> str:
        """Return the path of one image."""
        return os.path.join(self._root, os.fsdecode(self._images[row]))

    def summary(self) -> str:
        """Return number, path and kind of the images."""
        return f"{len(self):,} in {printable(self.path)} ({self.kind})"

    def paths(self) -> list[str]:
        """Return the paths of all images, in order."""
        return [self.path_of(row) for row in range(len(self))]

    def name_of(self, row: int) -> str:
        """Return the name of one image: its path, relative to the folder of the source."""
        return self.path_of(row).removeprefix(os.path.join(self._root, ""))

    def files(self) -> list[str]:
        """Return the paths of the files that hold the images, in order."""
        return self.paths()

    def fingerprint(self) -> tuple[str, str]:
        """Return digests of the images' names, and of sizes and times of their files, in order.

        Files of features compare it, so that images that were replaced under their names are
        noticed. Tars, Arrow and parquet have the sizes and times of these files; a data set in
        memory has none, and only its length is known, by its names. A resumed run compares only the
        paths, because a copy of the images on a node's own disk may have other times.
        """
        names = digest_of(map(self.name_of, range(len(self))))
        return names, digest_of(map(content_stamp, self.files()))

    @functools.cached_property
    def named_classes(self) -> Classes:
        """The classes of the images; the images without one are counted once, in the log.

        Raises:
            NoLabels: this source has no labels.
        """
        classes = self._find_classes()
        if classes.without:
            texts = ", ".join(f"{text} ({count})" for text, count in classes.without.most_common(5))
            total = sum(classes.without.values())
            warn_once(f"{self.path}: {total} of {len(self)} images have no class: {texts}")
        return classes

    def _find_classes(self) -> Classes:
        raise NoLabels(f"{self.path} has no labels: expected a source with labels")

    @property
    def classes(self) -> list[str]:
        """Names of the classes; raises ``NoLabels`` if this source has no labels."""
        return self.named_classes.names

    def labels(self) -> NDArray[np.int64]:
        """Return the class of each image, int64 (N,): an index into ``classes``; −1: no class.

        Raises:
            NoLabels: this source has no labels.
        """
        return self.named_classes.indices

    def unreadable_paths(self) -> list[str]:
        """Return the unreadable paths that this process and its loader workers have found."""
        rows = self._unreadable.nonzero()[:, 0].tolist()
        return [printable(self.path_of(row)) for row in rows]


@functools.cache
def warn_once(message: str) -> None:
    """Log a warning, unless this process has logged it before."""
    logging.root.warning(message)


def content_stamp(path: str | os.PathLike[str]) -> str:
    """Return size and time of change (ns) of a file; ``missing`` if there is none.

    It follows links. Copies compare it too.
    """
    try:
        state = os.stat(path)
    except OSError:
        return "missing"
    return f"{state.st_size} {state.st_mtime_ns}"


def evenly_spaced(total: int, count: int) -> list[int]:
    """Return ``count`` evenly spread rows of ``total``; all rows if there are fewer.

    Example:
        >>> evenly_spaced(15, 8)
        [0, 1, 3, 5, 7, 9, 11, 13]
    """
    count = min(count, total)
    return [i * total // count for i in range(count)]
