"""Images in tar files (the WebDataset layout), read at random through an index.

For file systems that suffer under a million small files: a few hundred large ones instead. The
members ``KEY.jpg`` and ``KEY.cls`` of a tar are an image and, in digits, its class.
"""

from __future__ import annotations

import logging
import os
import stat
import weakref
import zlib
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from pirl_plugin.images.names import SETTINGS_FILE
from pirl_plugin.images.read import MAX_FILE_BYTES
from pirl_plugin.images.shared_bytes import SharedBytes
from pirl_plugin.images.sources.base import ImageSource
from pirl_plugin.images.sources.path_table import PathTable
from pirl_plugin.images.sources.shard_index import INDEX, MEMBERS, NO_LABEL, scan_tar, scan_tars

MAX_OPEN = 128
"""Tars that a process holds open, of those it needs; systems allow 256 to 1,024 files."""
_log = logging.getLogger(__name__)


class ShardSource(ImageSource):
    """The images of the tar files of a folder, in the order of the tars' names and of the members.

    ``pirl-plugin prepare --shards`` writes such folders, with an index. Without one the headers of
    all members are read at each start; with one, those of tars that were written or copied since.

    Args:
        path: folder of ``*.tar``, and ``index.npz``.
        grey_size: side of the image that takes the place of one that cannot be read, pixels.

    Raises:
        FileNotFoundError: there is no such folder.
        ValueError: it holds fewer than two images, or the index is not that of its tars.
    """

    wanted = "a folder of .tar files in the WebDataset layout, as prepare --shards writes"

    def __init__(self, path: str | os.PathLike[str], grey_size: int = 224) -> None:
        if not os.path.isdir(path):
            raise FileNotFoundError(self.problem(path, "is not a folder that exists"))
        self._tars = sorted(tar.name for tar in Path(path).glob("*.tar"))
        index = Path(path, INDEX)
        if index.is_file():
            names, members = self._read_index(index)
        elif Path(path, SETTINGS_FILE).is_file():
            found = f"has no {INDEX}, because prepare --shards did not end; repeat that command"
            raise ValueError(self.problem(path, found))
        else:
            _log.info(f"{path} has no {INDEX}: reading the headers of {len(self._tars)} tars")
            names, members = scan_tars([Path(path, tar) for tar in self._tars])
        self._block = SharedBytes(members.nbytes)
        self._block.array[:] = members.view(np.uint8)
        self._own_descriptors()
        super().__init__(path, PathTable(names), grey_size=grey_size)

    def _own_descriptors(self) -> None:
        """Begin with no tar open; those that will be are closed with this object."""
        self._open: dict[int, int] = {}
        weakref.finalize(self, _close, self._open)

    def _read_index(self, index: Path) -> tuple[list[str], NDArray[Any]]:
        try:
            with np.load(index) as arrays:
                tars, names = arrays["tars"].tolist(), arrays["names"].tolist()
                sizes, members = arrays["tar_sizes"].tolist(), arrays["members"].astype(MEMBERS)
                times = (
                    arrays["tar_times"].tolist() if "tar_times" in arrays else [None] * len(tars)
                )
        except (ValueError, OSError, EOFError, KeyError, BadZipFile, zlib.error) as error:
            found = f"has a damaged {INDEX} ({error})"
            raise ValueError(self.problem(index.parent, found)) from None
        here = [(index.parent / tar).stat() for tar in self._tars]
        if (tars, sizes) != (self._tars, [each.st_size for each in here]):
            raise self._other_tars(index.parent)
        again = [i for i, time in enumerate(times) if time != here[i].st_mtime_ns]
        if again:
            _log.info(
                f"{index}: reading the headers of {len(again)} tars, whose times are not those of "
                f"the index; copy tars with their times (cp -p), or repeat prepare --shards"
            )
        for shard in again:
            first, end = np.searchsorted(members["shard"], [shard, shard + 1])
            names_here, members_here = scan_tar(index.parent / tars[shard], shard)
            same = np.array_equal(members[first:end], members_here)
            if not same or names[first:end] != names_here:
                raise self._other_tars(index.parent)
        return names, members

    def _other_tars(self, folder: Path) -> ValueError:
        return ValueError(
            self.problem(folder, f"holds other tars than its {INDEX} says")
            + f"; remove {INDEX}, or complete them with prepare --shards"
        )

    @property
    def _members(self) -> NDArray[Any]:
        return self._block.array.view(MEMBERS)

    def read(self, row: int) -> bytes:
        """Content of one image.

        Raises:
            OSError: its tar cannot be read, or is shorter than it was.
        """
        shard, offset, size, _ = self._members[row].item()
        if size > MAX_FILE_BYTES:
            raise OSError(f"the image has {size / 2**20:,.0f} MiB, more than are read")
        descriptor = self._open.get(shard)
        opened = descriptor is None
        if descriptor is None:
            descriptor = _open_regular(os.path.join(self.path, self._tars[shard]))
        try:
            content = os.pread(descriptor, size, offset)
        finally:
            if opened and len(self._open) < MAX_OPEN:
                self._open[shard] = descriptor
            elif opened:
                os.close(descriptor)
        if len(content) < size:
            raise OSError(f"{self._tars[shard]} ends within the image")
        return content

    def path_of(self, row: int) -> str:
        """``FOLDER/TAR:MEMBER`` of one image, for messages."""
        return f"{self.file_of(row)}:{self._images[row]}"

    def file_of(self, row: int) -> str:
        """``FOLDER/TAR`` of one image."""
        return os.path.join(self.path, self._tars[int(self._members[row]["shard"])])

    def labels(self) -> NDArray[np.int64]:
        """Class of each image, int64 (N,), from the ``.cls`` members.

        Raises:
            ValueError: an image has none.
        """
        labels: NDArray[np.int64] = self._members["label"].astype(np.int64)
        if (labels == NO_LABEL).any():
            row = int(np.argmax(labels == NO_LABEL))
            raise ValueError(f"{self.path_of(row)} has no class: expected a member .cls beside it")
        return labels

    def class_numbers(self) -> dict[str, int]:
        """Number of each class by its folder, ``.`` for no folder, as ``prepare --shards`` writes.

        Empty where a folder holds several classes, or several hold one.

        Raises:
            ValueError: an image has no class.
        """
        folders = (
            folder if rest else "."
            for folder, _, rest in (name.partition("/") for name in self._images)
        )
        found = set(zip(folders, self.labels().tolist(), strict=True))
        numbers = dict(found)
        return numbers if len(numbers) == len(found) == len(set(numbers.values())) else {}

    def __getstate__(self) -> dict[str, Any]:
        """Each process, and each copy, opens the tars itself."""
        return {key: value for key, value in self.__dict__.items() if key != "_open"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """No tar is open."""
        self.__dict__.update(state)
        self._own_descriptors()


def _close(descriptors: dict[int, int]) -> None:
    for descriptor in descriptors.values():
        os.close(descriptor)


def _open_regular(path: str) -> int:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path} is not a regular file")
    return descriptor
