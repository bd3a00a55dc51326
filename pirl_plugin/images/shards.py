"""Images in tar files (the WebDataset layout), read at random through an index.

For file systems that suffer under a million small files: a few hundred large ones instead. The
members ``KEY.jpg`` and ``KEY.cls`` of a tar are an image and, in digits, its class.
"""

from __future__ import annotations

import logging
import os
import tarfile
import weakref
import zlib
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from pirl_plugin.files import atomic_write
from pirl_plugin.images.decode import MAX_FILE_BYTES
from pirl_plugin.images.folders import image_extensions
from pirl_plugin.images.names import INDEX, SETTINGS_FILE
from pirl_plugin.images.shared import PathTable, SharedArray
from pirl_plugin.images.sources import ImageSource

MAX_OPEN = 128
"""Tars that a process holds open, of those it needs; systems allow 256 to 1,024 files."""
NO_LABEL = -1
MEMBERS = np.dtype([("shard", "<i4"), ("offset", "<i8"), ("size", "<i8"), ("label", "<i8")])
"""Of each image: number of its tar, first byte and length in it, and class."""


class ShardSource(ImageSource):
    """The images of the tar files of a folder, in the order of the tars' names and of the members.

    ``pirl-plugin prepare --shards`` writes such folders, with an index. Where there is no index of
    these tars, the headers of all members are read at each start.

    Args:
        path: folder of ``*.tar``.
        grey_size: side of the image that takes the place of one that cannot be read, pixels.

    Raises:
        FileNotFoundError: there is no such folder.
        ValueError: it holds fewer than two images, or a tar is not whole or is compressed.
    """

    def __init__(self, path: str | os.PathLike[str], grey_size: int = 224) -> None:
        folder = Path(path)
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder} is not a folder that exists: expected one of tars")
        self._tars = sorted(tar.name for tar in folder.glob("*.tar"))
        if packed := sorted(folder.glob("*.tar.gz")) + sorted(folder.glob("*.tgz")):
            raise ValueError(f"{packed[0]} is compressed: expected .tar; unpack it with gunzip")
        found = _read_index(folder, self._tars)
        if found is None and (folder / SETTINGS_FILE).is_file():
            raise ValueError(
                f"{folder} has no {INDEX} of its tars: prepare --shards did not end, or they were "
                f"changed; repeat that command"
            )
        names, members = found or scan_tars([folder / tar for tar in self._tars])
        self._members = SharedArray(members)
        self._own_descriptors()
        super().__init__(path, PathTable(names), grey_size=grey_size)

    def _own_descriptors(self) -> None:
        """Begin with no tar open; those that will be are closed with this object."""
        self._open: dict[int, int] = {}
        weakref.finalize(self, _close, self._open)

    def read(self, row: int) -> bytes:
        """Content of one image.

        Raises:
            OSError: its tar cannot be read, or is shorter than it was.
        """
        shard, offset, size, _ = self._members.array[row].item()
        if size > MAX_FILE_BYTES:
            raise OSError(f"the image has {size / 2**20:,.0f} MiB, more than are read")
        if shard not in self._open:
            if len(self._open) >= MAX_OPEN:
                os.close(self._open.pop(next(iter(self._open))))
            tar = os.path.join(self.path, self._tars[shard])
            self._open[shard] = os.open(tar, os.O_RDONLY | os.O_CLOEXEC)
        content = os.pread(self._open[shard], size, offset)
        if len(content) < size:
            raise OSError(f"{self._tars[shard]} ends within the image")
        return content

    def path_of(self, row: int) -> str:
        """``FOLDER/TAR:MEMBER`` of one image, for messages."""
        return f"{self.file_of(row)}:{self._images[row]}"

    def file_of(self, row: int) -> str:
        """``FOLDER/TAR`` of one image."""
        return os.path.join(self.path, self._tars[int(self._members.array[row]["shard"])])

    def labels(self) -> NDArray[np.int64]:
        """Class of each image, int64 (N,), from the ``.cls`` members.

        Raises:
            ValueError: an image has none.
        """
        labels: NDArray[np.int64] = self._members.array["label"].astype(np.int64)
        if (labels == NO_LABEL).any():
            row = int(np.argmax(labels == NO_LABEL))
            raise ValueError(f"{self.path_of(row)} has no class: expected a member .cls beside it")
        return labels

    def class_numbers(self) -> dict[str, int]:
        """Number of each class by its folder, ``.`` for no folder, as ``prepare --shards`` writes.

        Empty where a folder holds several classes, or several hold one.
        """
        folders = (os.path.dirname(name).partition("/")[0] or "." for name in self._images)
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


def _stamps(folder: Path, tars: list[str]) -> NDArray[np.int64]:
    """Size and time of change of each tar, (T, 2)."""
    found = [(folder / tar).stat() for tar in tars]
    return np.array([[s.st_size, s.st_mtime_ns] for s in found], np.int64).reshape(-1, 2)


def _read_index(folder: Path, tars: list[str]) -> tuple[list[str], NDArray[Any]] | None:
    """Names and ``MEMBERS`` of the index; None where there is none of these very tars."""
    try:
        with np.load(folder / INDEX) as arrays:
            same = arrays["tars"].tolist() == tars
            if same and np.array_equal(arrays["stamps"], _stamps(folder, tars)):
                return arrays["names"].tolist(), arrays["members"].astype(MEMBERS)
            reason = "is of other tars, or they were copied without their times (cp -p)"
    except FileNotFoundError:
        return None
    except (ValueError, OSError, EOFError, KeyError, BadZipFile, zlib.error) as error:
        reason = f"is damaged ({error})"
    logging.root.warning(f"{folder / INDEX} {reason}; the headers of all tars are read")
    return scan_tars([folder / tar for tar in tars])


def write_index(folder: Path) -> None:
    """Write the index of all tars of a folder.

    Raises:
        ValueError: a tar cannot be read.
    """
    tars = sorted(tar.name for tar in folder.glob("*.tar"))
    stamps = _stamps(folder, tars)
    names, members = scan_tars([folder / tar for tar in tars])
    with atomic_write(folder / INDEX) as file:
        np.savez_compressed(
            file,
            tars=np.array(tars, dtype=str),
            stamps=stamps,
            names=np.array(names, dtype=str),
            members=members,
        )


def scan_tars(tars: list[Path]) -> tuple[list[str], NDArray[Any]]:
    """:func:`scan_tar` of all tars, joined."""
    found = [scan_tar(tar, shard) for shard, tar in enumerate(tars)]
    names = [name for tar_names, _ in found for name in tar_names]
    return names, np.concatenate([np.empty(0, MEMBERS), *(rows for _, rows in found)])


def scan_tar(path: Path, shard: int) -> tuple[list[str], NDArray[Any]]:
    """Find the images of a tar by its headers.

    WebDataset's key of a member ends at the first dot of the file's name. Of each key the first
    image named ``KEY.jpg`` or alike counts. An image with more dots in its name belongs to such a
    one (``KEY.seg.png``) and is skipped; where there is none, it is an image of its own.

    Args:
        path: of the tar.
        shard: its number.

    Returns:
        Names of the images, and ``MEMBERS`` rows (n,), label −1 where there is no ``.cls``.

    Raises:
        ValueError: it is not a whole tar, an image or class in it is a link or sparse, or a class
            is no number.
    """
    images: dict[str, tuple[int, int, str]] = {}
    dotted: list[tuple[Any, ...]] = []
    others: dict[str, Any] = {}
    labels: dict[str, int] = {}
    extensions = image_extensions()
    skipped = 0
    try:
        with tarfile.open(path, "r:") as tar:
            for member in tar:
                folder, _, file = member.name.rpartition("/")
                stem, _, _ = file.partition(".")
                rest, suffix = os.path.splitext(file.lower())
                is_image = suffix in extensions and not file.startswith(".")
                if (not is_image and suffix != ".cls") or member.isdir():
                    continue
                if not member.isreg() or member.issparse():
                    raise ValueError(
                        f"{member.name} is a link or sparse; tar -h --hard-dereference writes files"
                    )
                if suffix == ".cls":
                    content = tar.extractfile(member)
                    name = f"{folder}/{file[: len(rest)]}"
                    labels[name] = int(content.read(32)) if content else NO_LABEL
                    continue
                place = (member.offset_data, member.size, member.name)
                if len(stem) == len(rest):
                    images.setdefault(f"{folder}/{stem}", place)
                else:
                    dotted.append((f"{folder}/{stem}", *place))
            end = tar.offset
        with open(path, "rb") as whole:
            whole.seek(end)
            if len(whole.read(tarfile.BLOCKSIZE).strip(b"\0")) or whole.tell() == end:
                raise ValueError(f"it is cut off, or joined with another, at byte {end}")
    except (tarfile.TarError, ValueError, OSError) as error:
        raise ValueError(f"{path} is not a whole tar of images ({error}): make it again") from None
    for key, offset, size, name in dotted:
        if key in images:
            skipped += 1
        else:
            others[os.path.splitext(name if "/" in name else f"/{name}")[0]] = offset, size, name
    images.update(others)
    if skipped:
        logging.root.info(f"{path}: {skipped} images beside others of their key are skipped")
    found = sorted(
        (at, size, name, labels.get(key, NO_LABEL)) for key, (at, size, name) in images.items()
    )
    rows = [(shard, at, size, label) for at, size, _, label in found]
    return [name for _, _, name, _ in found], np.array(rows, MEMBERS)
