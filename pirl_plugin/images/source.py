"""The base class for all sources, which reads and decodes each image and counts bad ones."""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset, get_worker_info

from pirl_plugin.images.channel_files import join_channels
from pirl_plugin.images.classes import Classes, NoLabels, name_classes, natural_order
from pirl_plugin.images.columns import Entry
from pirl_plugin.images.decode import (
    NEEDED_SIDE,
    READ_ERRORS,
    Decoded,
    advice_on,
    decode,
    read_file,
)
from pirl_plugin.images.reading import RGB, PixelType, Reading, Statistics, measure
from pirl_plugin.system.console import warn, warn_once
from pirl_plugin.system.failures import Refused
from pirl_plugin.system.files import digest_of
from pirl_plugin.system.watcher import waiting
from pirl_plugin.views import IMAGENET_MEAN, IMAGENET_STD

_MOST_WORKERS = 1024
_NO_ROW = -1  # a process has read none yet
_SAMPLE = 9  # images
_STATISTICS_SAMPLE = 256  # images


class ImageSource(Dataset[tuple[torch.Tensor, bool]]):
    """A source that reads and decodes each image once.

    To add a source, write a subclass. It finds the images and passes them to this constructor. If
    several images share a file, it also overrides ``read``, ``path_of`` and ``files``.

    An unreadable file yields a gray image and ``False``. The first loader worker that reads it logs
    one warning with the path and the reason.

    Args:
        path: the user's folder or file.
        entries: the images.
        root: folder that their paths are relative to; ``path`` itself if None.
        class_order: class names in order, see :func:`~pirl_plugin.images.classes.name_classes`.

    Attributes:
        channel_names: the channels in order; empty if each image is one file.
        nodata: the user's value for missing pixels, if the images were opened with one.

    Raises:
        ValueError: there are no images.
    """

    kind = "images"
    """The data format, for messages."""
    registered_name: str
    """For sources that a path suggests: the name in ``names.SOURCES``, for a configuration."""
    label_hint = ""
    """How to label the images, for messages: a sentence."""
    missing_labels: Container[str] = ()
    """Labels, in lower case, that mark an image as unlabeled."""
    folders_are_labels = False
    """Whether images without labels are labeled by the first folder in their paths."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        entries: Iterable[Entry],
        root: str | None = None,
        class_order: Sequence[str] = (),
    ) -> None:
        entries = list(entries)
        if not entries:
            raise Refused(f"{path} contains no images.")
        self.path = os.fspath(path)
        self._root = self.path if root is None else root
        # Arrays of bytes, because forked workers would copy a list's strings.
        self._images = np.array([os.fsencode(entry.image) for entry in entries], np.bytes_)
        self._labels = [entry.label for entry in entries]
        self._class_order = class_order
        groups = [entry.group for entry in entries]
        self._groups = groups if any(groups) else []  # workers copy it
        channel_files = [entry.channels for entry in entries]
        self.channel_names = tuple(natural_order(set().union(*channel_files)))
        self._channel_files = {
            name: np.array([os.fsencode(files.get(name, "")) for files in channel_files], np.bytes_)
            for name in self.channel_names
        }
        self.nodata: float | None = None
        self._statistics: dict[Reading, Statistics] = {}
        # Loader workers write to these: whether each image is unreadable; and for this process and
        # each worker, the row that it is reading, or −2 − row if it has read it.
        self._unreadable = torch.zeros(len(self._images), dtype=torch.bool).share_memory_()
        self._rows_being_read = torch.full((1 + _MOST_WORKERS,), _NO_ROW).share_memory_()

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, row: int) -> tuple[torch.Tensor, bool]:
        """Read and decode one image for 224-px views: see :meth:`load`."""
        return self.load(row, 224, self.usual_reading)

    @property
    def usual_reading(self) -> Reading:
        """How to read images with their own channels and dtype."""
        return Reading(self.pixel_type, nodata=self.nodata)

    def load(self, row: int, size: int, reading: Reading) -> tuple[torch.Tensor, bool]:
        """Read and decode one image, and replace missing pixels.

        Args:
            row: in [0, len).
            size: side of the views in pixels. Large JPEGs are decoded at a smaller size that leaves
                these views as sharp as :data:`~pirl_plugin.images.decode.NEEDED_SIDE` leaves 224-px
                views.
            reading: the channels and dtype, and what replaces missing pixels.

        Returns:
            The pixels ``(C, H, W)``, and whether the image is readable; if not, they are gray.
        """
        image = self.try_read(row, size, reading)
        if image is None:
            return reading.pixel_type.gray, False
        pixels, missing = image
        if missing is not None:
            if not reading.mean:
                reading = reading._replace(mean=self.statistics(reading).mean)
            pixels = reading.replace_missing(pixels, missing)
        return pixels, True

    def try_read(
        self, row: int, size: int, reading: Reading
    ) -> tuple[torch.Tensor, NDArray[np.bool_] | None] | None:
        """Read and decode one image, as :meth:`Reading.select` returns it; None: unreadable."""
        try:
            return reading.select(self._read_image(row, round(NEEDED_SIDE * size / 224)))
        except READ_ERRORS as error:
            self.report_unreadable(row, str(error) or "too little memory")
        return None

    def report_unreadable(self, row: int, reason: str) -> None:
        """Count an unreadable image, and log the reason the first time."""
        if not self._unreadable[row]:
            self._unreadable[row] = True
            warn(f"Skipped unreadable image {row}, {self.path_of(row)}: {reason}")

    @functools.cached_property
    def pixel_type(self) -> PixelType:
        """The most common channels and dtype in a small sample.

        Raises:
            ValueError: no image in the sample is readable; the message is about the first one.
        """
        counts: Counter[PixelType] = Counter()
        errors = []
        for row in evenly_spaced(len(self), _SAMPLE):
            try:
                pixels = self._read_image(row, scaled_to=1).pixels
                counts[PixelType(len(pixels), pixels.dtype)] += 1
            except READ_ERRORS as error:
                errors.append(f"{self.path_of(row)}: {error or 'too little memory'}")
        if not counts:
            advice = advice_on([os.path.splitext(self.files_of(0)[0])[1].lower()])
            raise Refused(f"None of {len(errors)} images could be read. {errors[0]}{advice}")
        return counts.most_common(1)[0][0]

    def type_to_read(self, rgb: bool) -> PixelType:
        """Return ``RGB`` on request, and print how values are scaled; else :attr:`pixel_type`."""
        if not rgb:
            return self.pixel_type
        warn_once(
            "Images are converted to RGB with 8 bits: gray is repeated, a fourth channel is "
            "dropped, and 16-bit values are divided by 257, so that 65,535 becomes 255."
        )
        return RGB

    def statistics(self, reading: Reading | None = None) -> Statistics:
        """Return per-channel statistics from a sample of the images, without missing pixels.

        Args:
            reading: how the images are read; None: :attr:`usual_reading`.

        Returns:
            For RGB, ImageNet's mean and standard deviation. Otherwise, statistics from up to 256
            readable images, which count equally.

        Raises:
            ValueError: none of these images are readable, or a channel has no valid pixel.
        """
        reading = reading or self.usual_reading
        if reading.pixel_type == RGB:
            return Statistics(IMAGENET_MEAN, IMAGENET_STD)
        if reading not in self._statistics:
            rows = evenly_spaced(len(self), _STATISTICS_SAMPLE)
            images = filter(None, (self.try_read(row, 224, reading) for row in rows))
            self._statistics[reading] = measure(images, reading.pixel_type.white, self.path)
        return self._statistics[reading]

    def _read_image(self, row: int, scaled_to: int) -> Decoded:
        with self.reading(row):
            if self.channel_names:
                files = self.channel_files(row)
                return join_channels(self.path, self.channel_names, files, scaled_to)
            image = self.read(row)
            return Decoded(image) if isinstance(image, torch.Tensor) else decode(image, scaled_to)

    @contextmanager
    def reading(self, row: int) -> Iterator[None]:
        """Limit how long a block may read and decode an image, and name it if it takes too long."""
        worker = get_worker_info()
        reader = 0 if worker is None else min(1 + worker.id, _MOST_WORKERS)
        self._rows_being_read[reader] = row
        try:
            with self.waiting():
                yield
        finally:
            self._rows_being_read[reader] = -2 - row

    def waiting(self) -> AbstractContextManager[None]:
        """Limit how long a block may wait for images that this process or its workers read."""
        return waiting(self._activity, self._rows_being_read.tolist)

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

    def channel_files(self, row: int) -> dict[str, str]:
        """Return channel → path for the files that an image has; empty if it is one file."""
        files = {}
        for name, paths in self._channel_files.items():
            if path := os.fsdecode(paths[row]):
                files[name] = os.path.join(self._root, path)
        return files

    def files_of(self, row: int) -> list[str]:
        """Return the paths of an image's files; several if each has a channel."""
        return list(self.channel_files(row).values()) or [self.path_of(row)]

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
        return list(chain.from_iterable(map(self.files_of, range(len(self)))))

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
        """The images' classes.

        Raises:
            NoLabels: this source has no labels.
        """
        return self._find_classes()

    def _find_classes(self) -> Classes:
        """Return the classes; a subclass may read the labels here, rather than with the images."""
        labels = self._labels
        order = self._class_order
        if self.folders_are_labels and not any(labels):
            paths = map(os.fsdecode, self._images)
            labels = [path.split(os.sep)[0] if os.sep in path else None for path in paths]
            order = sorted(set(filter(None, labels)))
        if all(label is None for label in labels):
            raise NoLabels(f"{self.path} has no labels. {self.label_hint}".strip())
        return name_classes(labels, order, self.path, self.missing_labels)

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
        """Return one group per image, int64 (N,); None if no image has one.

        Images with equal numbers belong together, such as those of one patient, plate or video. An
        image without a group has a number of its own.
        """
        if not self._groups:
            return None
        first_row: dict[object, int] = {}
        names = enumerate(self._groups)
        return np.array([first_row.setdefault(name or row, row) for row, name in names], np.int64)

    @property
    def group_names(self) -> list[str | None]:
        """One group name per image; None: it belongs to no group."""
        return self._groups or [None] * len(self)

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


def evenly_spaced(total: int, count: int) -> list[int]:
    """Return ``count`` evenly spaced rows out of ``total``; all rows if there are fewer.

    Example:
        >>> evenly_spaced(15, 8)
        [0, 1, 3, 5, 7, 9, 11, 13]
    """
    count = min(count, total)
    return [i * total // count for i in range(count)]
