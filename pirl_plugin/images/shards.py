"""Images in tar files (the WebDataset layout), read in random order through an index.

They suit file systems that are slow with a million small files. The member ``KEY.jpg`` of a tar is
an image, and ``KEY.cls`` has the number of its class.
"""

from __future__ import annotations

import functools
import os
import tarfile
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pirl_plugin.failures import Refused
from pirl_plugin.files import atomic_write
from pirl_plugin.images.folders import image_extensions
from pirl_plugin.images.names import INDEX
from pirl_plugin.images.shared import PathTable, SharedArray
from pirl_plugin.images.sources import ImageSource

NO_LABEL = -1
MEMBERS = np.dtype([("shard", "<i4"), ("offset", "<i8"), ("size", "<i8"), ("label", "<i8")])
"""For each image: number of its tar, first byte and length in the tar, and class."""

_Scan = tuple[list[str], NDArray[Any]]


class ShardSource(ImageSource):
    """The images in the tar files of a folder, in the order of the tars' names and of the members.

    ``pirl-plugin prepare --shards`` writes such folders, with an index. Without an index of these
    tars, the headers of all members are read at each start.

    Args:
        path: folder with ``*.tar``.

    Raises:
        ValueError: it holds fewer than two images, or a tar is truncated or compressed.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        folder = Path(path)
        if packed := sorted([*folder.glob("*.tar.gz"), *folder.glob("*.tgz")]):
            raise Refused(f"{packed[0]} is compressed: expected .tar; unpack it with gunzip")
        self._tars, sizes = _tars_of(folder)
        found = None
        if (folder / INDEX).is_file():
            with np.load(folder / INDEX) as index:
                if index["tars"].tolist() == self._tars and index["sizes"].tolist() == sizes:
                    found = index["names"].tolist(), index["members"]
        names, members = found or _scan_all(folder, self._tars)
        self._members = SharedArray(members)
        super().__init__(path, PathTable(names))

    def read(self, row: int) -> bytes:
        """Return the content of one image.

        Raises:
            OSError: its tar cannot be read, or has become shorter.
        """
        shard, offset, size, _ = self._members.array[row].item()
        tar = _opened(os.path.join(self.path, self._tars[shard]))
        content = os.pread(tar.fileno(), size, offset)
        if len(content) < size:
            raise OSError(f"{self._tars[shard]} ends within the image")
        return content

    def path_of(self, row: int) -> str:
        """Return ``FOLDER/TAR:MEMBER`` of one image, for messages."""
        tar = self._tars[int(self._members.array[row]["shard"])]
        return f"{os.path.join(self.path, tar)}:{self._images[row]}"

    def labels(self) -> NDArray[np.int64]:
        """Return the class of each image, int64 (N,), from the ``.cls`` members.

        Raises:
            ValueError: an image has no class.
        """
        labels: NDArray[np.int64] = self._members.array["label"].astype(np.int64)
        if (labels == NO_LABEL).any():
            row = int(np.argmax(labels == NO_LABEL))
            raise Refused(f"{self.path_of(row)} has no class: expected its .cls in the same tar")
        return labels


@functools.lru_cache(maxsize=128)  # systems allow 256 to 1,024 open files
def _opened(tar: str) -> FileIO:
    """Return a tar that stays open, in forked processes too."""
    return open(tar, "rb", buffering=0)


def _tars_of(folder: Path) -> tuple[list[str], list[int]]:
    tars = sorted(folder.glob("*.tar"))
    return [tar.name for tar in tars], [tar.stat().st_size for tar in tars]


def write_index(folder: Path) -> None:
    """Write the index of all tars of a folder.

    Raises:
        ValueError: a tar cannot be read.
    """
    tars, sizes = _tars_of(folder)
    names, members = _scan_all(folder, tars)
    with atomic_write(folder / INDEX) as file:
        np.savez_compressed(file, tars=tars, sizes=sizes, names=names, members=members)


def _scan_all(folder: Path, tars: list[str]) -> _Scan:
    found = [scan_tar(folder / tar, shard) for shard, tar in enumerate(tars)]
    names = [name for tar_names, _ in found for name in tar_names]
    return names, np.concatenate([np.empty(0, MEMBERS), *(rows for _, rows in found)])


def scan_tar(path: Path, shard: int) -> _Scan:
    """Find the images of a tar by its headers.

    WebDataset's key of a member ends at the first dot of the file's name. An image with more dots
    in its name (``KEY.seg.png``) is skipped if there is an image ``KEY.png`` or similar. Otherwise
    it is a separate image.

    Args:
        path: path of the tar.
        shard: number of the tar.

    Returns:
        Names of the images, and ``MEMBERS`` rows (n,), with label −1 if there is no ``.cls``.

    Raises:
        ValueError: it is not a complete tar, or a class is not a number.
    """
    images: dict[str, tuple[int, int, str]] = {}  # by name without extension
    labels: dict[str, int] = {}
    try:
        with tarfile.open(path, "r:") as tar:
            for member in filter(tarfile.TarInfo.isreg, tar):
                stem, suffix = os.path.splitext(member.name)
                if suffix == ".cls":
                    labels[stem] = int(tar.extractfile(member).read())  # type: ignore[union-attr]
                elif suffix.lower() in image_extensions():
                    images.setdefault(stem, (member.offset_data, member.size, member.name))
    except (tarfile.TarError, ValueError, OSError) as error:
        raise Refused(f"{path} is not a whole tar of images ({error}): make it again") from None
    names, rows = [], []
    for stem, (offset, size, name) in images.items():
        folder, file = os.path.split(stem)
        key = os.path.join(folder, file.partition(".")[0])
        if file[:1] != "." and (key == stem or key not in images):
            names.append(name)
            rows.append((shard, offset, size, labels.get(stem, NO_LABEL)))
    return names, np.array(rows, MEMBERS)
