"""Images in tar files (the WebDataset layout), read at random through an index.

For file systems that suffer under a million small files: a few hundred large ones instead. The
members ``KEY.jpg`` and ``KEY.cls`` of a tar are an image and, in digits, its class.
"""

from __future__ import annotations

import logging
import os
import stat
import tarfile
import weakref
import zlib
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from pirl_plugin.data.formats import image_extensions
from pirl_plugin.data.names import SETTINGS_FILE
from pirl_plugin.data.read import MAX_FILE_BYTES
from pirl_plugin.data.shared_bytes import SharedBytes
from pirl_plugin.data.sources.base import ImageSource
from pirl_plugin.data.sources.path_table import PathTable

INDEX = "index.npz"
NO_LABEL = -1
MAX_OPEN = 128
"""Tars that a process holds open, of those it needs; systems allow 256 to 1,024 files."""
MEMBERS = np.dtype([("shard", "<i4"), ("offset", "<i8"), ("size", "<i8"), ("label", "<i8")])
"""Of each image: number of its tar, first byte and length in it, and class."""

_log = logging.getLogger(__name__)


class ShardSource(ImageSource):
    """The images of the tar files of a folder, in the order of the tars' names and of the members.

    ``pirl-plugin prepare --shards`` writes such folders, with an index. Without one the headers of
    all members are read at each start.

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
            names, members = _scan([Path(path, tar) for tar in self._tars])
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
        except (ValueError, OSError, EOFError, KeyError, BadZipFile, zlib.error) as error:
            found = f"has a damaged {INDEX} ({error})"
            raise ValueError(self.problem(index.parent, found)) from None
        here = [os.path.getsize(index.parent / tar) for tar in self._tars]
        if (tars, sizes) != (self._tars, here):
            raise ValueError(
                self.problem(index.parent, f"holds other tars than its {INDEX} says")
                + f"; remove {INDEX}, or complete them with prepare --shards"
            )
        return names, members

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


def scan_tar(path: Path, shard: int) -> tuple[list[str], NDArray[Any]]:
    """Find the images of a tar by its headers: of each key the first, named ``KEY.jpg`` or alike.

    What else belongs to a key, as ``KEY.seg.png``, and names that start with a dot are skipped.

    Args:
        path: of the tar.
        shard: its number.

    Returns:
        Names of the images, and ``MEMBERS`` rows (n,), label −1 where there is no ``.cls``.

    Raises:
        ValueError: it is not a whole tar.
    """
    images: dict[str, tuple[str, int, int]] = {}
    labels: dict[str, int] = {}
    try:
        with tarfile.open(path, "r:") as tar:
            for member in tar:
                key, suffix = _split(member.name)
                if not member.isreg() or key.endswith("/"):
                    continue
                if suffix == ".cls":
                    content = tar.extractfile(member)
                    labels[key] = int(content.read(32)) if content else NO_LABEL
                elif suffix in image_extensions():
                    images.setdefault(key, (member.name, member.offset_data, member.size))
    except (tarfile.TarError, ValueError, OSError) as error:
        raise ValueError(
            f"{path} is not a whole tar ({error}): expected one; copy or make it again"
        ) from None
    names = [name for name, _, _ in images.values()]
    rows = [(shard, at, size, labels.get(key, NO_LABEL)) for key, (_, at, size) in images.items()]
    return names, np.array(rows, MEMBERS)


def _scan(tars: list[Path]) -> tuple[list[str], NDArray[Any]]:
    """:func:`scan_tar` of all tars, joined."""
    found = [scan_tar(tar, shard) for shard, tar in enumerate(tars)]
    names = [name for tar_names, _ in found for name in tar_names]
    return names, np.concatenate([np.empty(0, MEMBERS), *(rows for _, rows in found)])


def _split(name: str) -> tuple[str, str]:
    """Key and suffix of a member: WebDataset's key ends at the first dot of the file's name.

    Of a file whose name starts with a dot the key ends with ``/``.
    """
    folder, _, file = name.rpartition("/")
    stem, dot, suffix = file.partition(".")
    return f"{folder}/{stem}", (dot + suffix).lower()


def write_index(folder: Path) -> int:
    """Write the index of all tars of a folder; returns the number of images.

    Raises:
        ValueError: a tar cannot be read.
    """
    tars = sorted(folder.glob("*.tar"))
    names, members = _scan(tars)
    temporary = folder / f".{INDEX}.tmp"
    with open(temporary, "wb") as file:
        np.savez_compressed(
            file,
            tars=np.array([tar.name for tar in tars], dtype=str),
            tar_sizes=np.array([tar.stat().st_size for tar in tars], dtype=np.int64),
            names=np.array(names, dtype=str),
            members=members,
        )
    os.replace(temporary, folder / INDEX)
    return len(members)
