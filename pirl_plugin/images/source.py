"""The base class for all sources, which reads and decodes each image and counts bad ones."""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset, get_worker_info

from pirl_plugin.images.classes import Classes, NoLabels
from pirl_plugin.images.decode import NEEDED_SIDE, UnreadableImageError, decode_image, read_file
from pirl_plugin.system.console import warn, warn_once
from pirl_plugin.system.failures import Refused
from pirl_plugin.system.files import digest_of
from pirl_plugin.system.text import counted
from pirl_plugin.system.waits import Wait
from pirl_plugin.system.watcher import waiting
from pirl_plugin.views import IMAGENET_MEAN, IMAGENET_STD
from pirl_plugin.views.pixels import as_rgb

_GRAY = 128  # gray level of the image that replaces an unreadable one
_GRAY_SIDE = 224  # pixels
_MOST_WORKERS = 1024
_NO_ROW = -1  # a process has read none yet
_SAMPLE = 9  # images
_STATISTICS_SAMPLE = 256  # images


class PixelType(NamedTuple):
    """Number of channels and dtype of pixels ``(C, H, W)``: uint8, uint16 or float32."""

    channels: int
    dtype: torch.dtype

    def __str__(self) -> str:
        dtype = str(self.dtype).removeprefix("torch.")
        return f"{counted(self.channels, 'channel')} of {dtype}"


RGB = PixelType(3, torch.uint8)


class ImageSource(Dataset[tuple[torch.Tensor, bool]]):
    """A source that reads and decodes each image once.

    To add a source, write a subclass. It finds the images and passes them to this constructor; its
    method ``_find_classes`` returns the classes. If several images share a file, it also overrides
    ``read``, ``path_of`` and ``files``.

    An unreadable file yields a gray image and ``False``. The first loader worker that reads it logs
    one warning with the path and the reason.

    Args:
        path: the user's folder or file.
        images: image paths, relative to ``root``.
        root: folder that the paths are relative to; ``path`` itself if None.

    Raises:
        ValueError: there are no images.
    """

    kind = "images"
    """The data format, for messages."""
    registered_name: str
    """For sources that a path suggests: the name in ``names.SOURCES``, for a configuration."""
    channel_names: Sequence[str] = ()
    """The channels' names; empty if the source has none."""

    def __init__(
        self, path: str | os.PathLike[str], images: Iterable[str], root: str | None = None
    ) -> None:
        self.path = os.fspath(path)
        self._root = self.path if root is None else root
        # An array of bytes, because forked workers would copy a list's strings.
        self._images = np.array(list(map(os.fsencode, images)), np.bytes_)
        if len(self._images) == 0:
            raise Refused(f"{self.path} contains no images.")
        # Loader workers write to these: whether each image is unreadable; and for this process and
        # each worker, the row that it is reading, or −2 − row if it has read it.
        self._unreadable = torch.zeros(len(self._images), dtype=torch.bool).share_memory_()
        self._rows_being_read = torch.full((1 + _MOST_WORKERS,), _NO_ROW).share_memory_()

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, row: int) -> tuple[torch.Tensor, bool]:
        """Read and decode one image of :attr:`pixel_type` for 224-px views: see :meth:`load`."""
        return self.load(row, 224, self.pixel_type)

    def load(self, row: int, size: int, pixel_type: PixelType = RGB) -> tuple[torch.Tensor, bool]:
        """Read and decode one image.

        Args:
            row: in [0, len).
            size: side of the views in pixels. Large JPEGs are decoded at a smaller size that leaves
                these views as sharp as :data:`~pirl_plugin.images.decode.NEEDED_SIDE` leaves 224-px
                views.
            pixel_type: for RGB, images with one or four channels or 16 bits are converted; images
                with any other type are unreadable.

        Returns:
            The pixels ``(C, H, W)``, and whether the image is readable; if not, they are gray.
        """
        try:
            pixels = self._read_pixels(row, round(NEEDED_SIDE * size / 224))
            return _of_type(pixels, pixel_type), True
        except (OSError, UnreadableImageError, MemoryError) as error:
            if not self._unreadable[row]:
                self._unreadable[row] = True
                reason = str(error) or "too little memory"
                path = self.path_of(row)
                warn(f"Skipped unreadable image {row}, {path}: {reason}")
        shape = (pixel_type.channels, _GRAY_SIDE, _GRAY_SIDE)
        return torch.full(shape, _GRAY, dtype=pixel_type.dtype), False

    @functools.cached_property
    def pixel_type(self) -> PixelType:
        """The most common channels and dtype in a small sample."""
        counts: Counter[PixelType] = Counter()
        for row in evenly_spaced(len(self), _SAMPLE):
            with suppress(OSError, UnreadableImageError, MemoryError):
                pixels = self._read_pixels(row, scaled_to=1)
                counts[PixelType(len(pixels), pixels.dtype)] += 1
        return counts.most_common(1)[0][0] if counts else RGB

    def statistics(self, pixel_type: PixelType) -> tuple[list[float], list[float]]:
        """Return per-channel mean and standard deviation, from a sample of the images.

        Returns:
            ImageNet's for RGB. Otherwise, from up to 256 readable images, which count equally. For
            uint8, white is 1; other dtypes keep their units. A constant channel has deviation 1.

        Raises:
            ValueError: none of these images are readable.
        """
        if pixel_type == RGB:
            return list(IMAGENET_MEAN), list(IMAGENET_STD)
        means = []
        squares = []
        white = 255 if pixel_type.dtype == torch.uint8 else 1
        for row in evenly_spaced(len(self), _STATISTICS_SAMPLE):
            pixels, is_readable = self.load(row, 224, pixel_type)
            if is_readable:
                values = pixels.double().flatten(1) / white
                means.append(values.mean(1))
                squares.append(values.square().mean(1))
        if not means:
            raise Refused(f"{self.path}: none of the images could be read; see the warnings above.")
        mean = torch.stack(means).mean(0)
        variance = torch.stack(squares).mean(0) - mean.square()
        std = variance.clamp(min=0).sqrt()
        return mean.tolist(), torch.where(std > 0, std, 1.0).tolist()

    def _read_pixels(self, row: int, scaled_to: int) -> torch.Tensor:
        with self.reading(row):
            image = self.read(row)
            return image if isinstance(image, torch.Tensor) else decode_image(image, scaled_to)

    @contextmanager
    def reading(self, row: int) -> Iterator[None]:
        """Limit how long a block may read and decode an image, and name it if it takes too long."""
        worker = get_worker_info()
        reader = 0 if worker is None else min(1 + worker.id, _MOST_WORKERS)
        self._rows_being_read[reader] = row
        try:
            with waiting(self.wait()):
                yield
        finally:
            self._rows_being_read[reader] = -2 - row

    def wait(self) -> Wait:
        """Return a wait for images that this process or its loader workers read."""
        return Wait(self._activity, self._rows_being_read.tolist)

    def _activity(self) -> str:
        rows = self._rows_being_read.tolist()  # a copy, because other processes write to the tensor
        paths = [self.path_of(row) for row in rows if row >= 0]
        return f"reading {', '.join(paths[:3])}" if paths else ""

    def read(self, row: int) -> bytes | bytearray | torch.Tensor:
        """Return the content of an image's file, or the pixels if it has no file.

        Raises:
            OSError: the file cannot be read.
            UnreadableImageError: it is not an image.
        """
        return read_file(self.path_of(row))

    def path_of(self, row: int) -> str:
        """Return an image's path."""
        return os.path.join(self._root, os.fsdecode(self._images[row]))

    def files_of(self, row: int) -> list[str]:
        """Return the paths of an image's files; several if each has a channel."""
        return [self.path_of(row)]

    def summary(self) -> str:
        """Return a summary: number of images, path and format."""
        return f"{len(self):,} in {self.path} ({self.kind})"

    def paths(self) -> list[str]:
        """Return the paths of all images, in order."""
        return [self.path_of(row) for row in range(len(self))]

    def name_of(self, row: int) -> str:
        """Return an image's name: its path, relative to the source's folder."""
        return self.path_of(row).removeprefix(os.path.join(self._root, ""))

    def files(self) -> list[str]:
        """Return the paths of the files that hold the images, in order.

        Their sizes and times show whether images have changed, see :meth:`fingerprint`.
        """
        return self.paths()

    def fingerprint(self) -> tuple[str, str]:
        """Return two digests: image names, and sizes and times of their files, in order.

        Feature files compare these, so that images replaced under the same name are detected. For
        tars, Arrow and Parquet, the sizes and times are those of the containers. A data set in
        memory has none, and only its length is known, by its names. A resumed run compares only the
        paths, because a copy of the images on a node's local disk may have other times.
        """
        names = digest_of(map(self.name_of, range(len(self))))
        return names, digest_of(map(content_stamp, self.files()))

    @functools.cached_property
    def named_classes(self) -> Classes:
        """The images' classes. Unlabeled images are counted in a single warning.

        Raises:
            NoLabels: this source has no labels.
        """
        classes = self._find_classes()
        if classes.without:
            texts = ", ".join(f"{text} ({count})" for text, count in classes.without.most_common(5))
            total = sum(classes.without.values())
            warn_once(f"{self.path}: {total} of {len(self)} images are unlabeled: {texts}")
        return classes

    def _find_classes(self) -> Classes:
        """Return the classes; a subclass with labels overrides this."""
        raise NoLabels(f"{self.path} has no labels.")

    @property
    def classes(self) -> list[str]:
        """The class names; raises ``NoLabels`` if this source has no labels."""
        return self.named_classes.names

    def labels(self) -> NDArray[np.int64]:
        """Return one class per image, int64 (N,): an index into ``classes``; −1: unlabeled.

        Raises:
            NoLabels: this source has no labels.
        """
        return self.named_classes.indices

    def groups(self) -> NDArray[np.int64] | None:
        """Return one group per image, int64 (N,); None if the user named no groups.

        Images with equal numbers belong together, such as those of one patient, plate or video. An
        image without a group has a number of its own.
        """
        names = self._find_groups()
        if names is None:
            return None
        number_of_name: dict[object, int] = {}
        numbers = []
        for row, name in enumerate(names):
            numbers.append(number_of_name.setdefault(row if name is None else name, row))
        return np.array(numbers, np.int64)

    def _find_groups(self) -> Sequence[str | None] | None:
        """Return one group name per image; a subclass with groups overrides this."""
        return None

    def unreadable_paths(self) -> list[str]:
        """Return the unreadable paths found by this process and its loader workers."""
        rows = self._unreadable.nonzero()[:, 0].tolist()
        return [self.path_of(row) for row in rows]


def content_stamp(path: str | os.PathLike[str]) -> str:
    """Return a file's size and modification time (ns); ``missing`` if it does not exist.

    Follows links. Prepared copies are compared by it too.
    """
    try:
        state = os.stat(path)
    except OSError:
        return "missing"
    return f"{state.st_size} {state.st_mtime_ns}"


def _of_type(pixels: torch.Tensor, pixel_type: PixelType) -> torch.Tensor:
    """Return finite pixels with this type; for RGB, convert them."""
    if pixels.is_floating_point() and not bool(pixels.isfinite().all()):
        raise UnreadableImageError("it has NaN or infinite values; replace them")
    actual = PixelType(len(pixels), pixels.dtype)
    if actual == pixel_type:
        return pixels
    if pixel_type != RGB:
        raise UnreadableImageError(f"it has {actual}, but most images have {pixel_type}")
    try:
        return as_rgb(pixels)
    except Refused as error:
        raise UnreadableImageError(str(error)) from None


def evenly_spaced(total: int, count: int) -> list[int]:
    """Return ``count`` evenly spaced rows out of ``total``; all rows if there are fewer.

    Example:
        >>> evenly_spaced(15, 8)
        [0, 1, 3, 5, 7, 9, 11, 13]
    """
    count = min(count, total)
    return [i * total // count for i in range(count)]
