"""Images in tar files (the WebDataset layout), read in random order through an index.

They suit file systems that are slow with a million small files. The member ``KEY.jpg`` of a tar is
an image, and ``KEY.cls`` has the number of its class.
"""

from __future__ import annotations

import functools
import os
import tarfile
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pirl_plugin.images.decode import open_regular
from pirl_plugin.images.folders import image_extensions
from pirl_plugin.images.names import INDEX
from pirl_plugin.images.shared import PathTable, SharedArray
from pirl_plugin.images.source import ImageSource, warn_once
from pirl_plugin.system.failures import Refused
from pirl_plugin.system.files import atomic_write

NO_LABEL = np.iinfo(np.int64).min
"""Label of an image without ``.cls``; in a ``.cls``, −1 says that the image has no class."""
MEMBERS = np.dtype([("shard", "<i4"), ("offset", "<i8"), ("size", "<i8"), ("label", "<i8")])
"""For each image: number of its tar, first byte and length in the tar, and class."""
_LARGEST_PADDING = 1 << 20  # bytes of zeros at the end of a tar; tar pads to 10,240 by default


class Members(NamedTuple):
    """The images in tars: their names, ``MEMBERS`` rows (n,), and the names of the classes."""

    names: list[str]
    rows: NDArray[Any]
    classes: list[str] | None = None  # only an index has them


class ShardSource(ImageSource):
    """The images in the tar files of a folder, in the order of the tars' names and of the members.

    ``pirl-plugin prepare --shards`` writes such folders, with an index. Without an index of these
    tars, the headers of all members are read at each start.

    Args:
        path: folder with ``*.tar``.

    Raises:
        ValueError: it holds fewer than two images, a tar is truncated or compressed, or the index
            is damaged or lists a tar that is missing.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        folder = Path(path)
        if packed := sorted([*folder.glob("*.tar.gz"), *folder.glob("*.tgz")]):
            raise Refused(f"{packed[0]} is compressed: expected .tar; unpack it with gunzip")
        self._tars, sizes = _tars_of(folder)
        members = _read_index(folder, self._tars, sizes) or _scan_all(folder, self._tars)
        self._members = SharedArray(members.rows)
        self.classes = members.classes
        super().__init__(path, PathTable(members.names))

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
        """Return the class of each image, int64 (N,), from the ``.cls`` members; −1: no class.

        Raises:
            ValueError: an image has no ``.cls``.
        """
        labels: NDArray[np.int64] = self._members.array["label"].astype(np.int64)
        if (labels == NO_LABEL).any():
            row = int(np.argmax(labels == NO_LABEL))
            raise Refused(f"{self.path_of(row)} has no class: expected its .cls in the same tar")
        return labels


@functools.lru_cache(maxsize=128)  # systems allow 256 to 1,024 open files
def _opened(tar: str) -> FileIO:
    """Return a tar that stays open, in forked processes too."""
    return open(tar, "rb", buffering=0, opener=open_regular)


def _tars_of(folder: Path) -> tuple[list[str], list[int]]:
    """Return names and sizes (bytes) of the tars in a folder, by name."""
    tars = sorted(folder.glob("*.tar"))
    return [tar.name for tar in tars], [tar.stat().st_size for tar in tars]


def write_index(folder: Path, classes: list[str]) -> None:
    """Write the index of all tars of a folder.

    Args:
        folder: of the tars.
        classes: names of the classes 0, 1, … in their ``.cls``.

    Raises:
        ValueError: a tar cannot be read.
    """
    tars, sizes = _tars_of(folder)
    members = _scan_all(folder, tars)
    with atomic_write(folder / INDEX) as file:
        np.savez_compressed(
            file,
            tars=tars,
            sizes=sizes,
            names=members.names,
            members=members.rows,
            classes=np.array(classes, np.str_),
        )


def _read_index(folder: Path, tars: list[str], sizes: list[int]) -> Members | None:
    """Read the index of a folder; return None if there is none, or it is of other tars.

    Raises:
        ValueError: it is damaged, or lists a tar that is missing.
    """
    file = folder / INDEX
    if not file.is_file():
        return None
    try:
        with np.load(file) as index:
            listed = index["tars"].tolist()
            listed_sizes = index["sizes"].tolist()
            names = index["names"].tolist()
            members = Members(names, index["members"], index["classes"].tolist())
    except Exception as error:  # zip, zlib and numpy raise many types for damaged files
        raise Refused(
            f"{file} is damaged ({type(error).__name__}: {error}): remove it; then the tars "
            f"themselves are read at each start"
        ) from error
    if missing := sorted(set(listed) - set(tars)):
        raise Refused(
            f"{file} lists {len(listed)} tars, and {missing[0]} is missing: restore it, or remove "
            f"the index to use the other tars only"
        )
    if listed != tars or listed_sizes != sizes:
        warn_once(f"{file} is of other tars: the tars themselves are read at each start")
        return None
    return members


def _scan_all(folder: Path, tars: list[str]) -> Members:
    scans = [scan_tar(folder / tar, shard) for shard, tar in enumerate(tars)]
    names = [name for scan in scans for name in scan.names]
    no_rows = np.empty(0, MEMBERS)  # for a folder without tars
    return Members(names, np.concatenate([no_rows, *(scan.rows for scan in scans)]))


def scan_tar(path: Path, shard: int) -> Members:
    """Find the images of a tar by its headers.

    WebDataset's key of a member ends at the first dot of the file's name. An image with more dots
    in its name (``KEY.seg.png``) is skipped if there is an image ``KEY.png`` or similar. Otherwise
    it is a separate image.

    Args:
        path: path of the tar.
        shard: number of the tar.

    Returns:
        The images, with label ``NO_LABEL`` if there is no ``.cls``.

    Raises:
        ValueError: it is not a complete tar, or a class is not a number.
    """
    images: dict[str, tuple[int, int, str]] = {}  # by name without extension
    labels: dict[str, int] = {}
    try:
        with (
            open(path, "rb", opener=open_regular) as file,
            tarfile.open(fileobj=file, mode="r:") as tar,
        ):
            for member in _members_to_the_end(tar, file):
                stem, suffix = os.path.splitext(member.name)
                if suffix == ".cls":
                    labels[stem] = int(tar.extractfile(member).read())  # type: ignore[union-attr]
                elif suffix.lower() in image_extensions():
                    images.setdefault(stem, (member.offset_data, member.size, member.name))
    except (tarfile.TarError, ValueError, OSError) as error:
        raise Refused(f"{path} is not a whole tar of images ({error}): make it again") from None
    # Leave out masks and the like, which have the key of another image.
    names = []
    rows = []
    for stem, (offset, size, name) in images.items():
        folder, basename = os.path.split(stem)
        key = os.path.join(folder, basename.partition(".")[0])
        if basename[:1] != "." and (key == stem or key not in images):
            names.append(name)
            rows.append((shard, offset, size, labels.get(stem, NO_LABEL)))
    return Members(names, np.array(rows, MEMBERS))


def _members_to_the_end(tar: tarfile.TarFile, file: BinaryIO) -> Iterator[tarfile.TarInfo]:
    """Yield the regular files of a tar, and check that it ends as a tar does.

    ``tarfile`` takes the end of the file, or a damaged header, for the end of the archive.

    Raises:
        ValueError: the tar does not end with zeros.
    """
    yield from filter(tarfile.TarInfo.isreg, tar)
    file.seek(tar.offset)
    ending = file.read(_LARGEST_PADDING + 1)
    if not tarfile.BLOCKSIZE <= len(ending) <= _LARGEST_PADDING or any(ending):
        raise ValueError(f"it does not end at byte {tar.offset}, after its last member")
