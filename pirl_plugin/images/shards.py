"""Images in tar files, read in random order through the offsets in their headers.

They suit file systems that are slow with a million small files. In WebDataset layout, ``KEY.cls``
holds the class for the image ``KEY.jpg``: a name or a number. Without such members, the first
folder in the tar is the class, so that ``tar -cf images.tar *`` packs class folders.
"""

from __future__ import annotations

import functools
import os
import tarfile
from collections import Counter
from collections.abc import Collection, Iterator
from io import FileIO
from pathlib import Path
from typing import BinaryIO

import numpy as np

from pirl_plugin.images.columns import BY_NAME, Columns, Entry
from pirl_plugin.images.decode import open_regular
from pirl_plugin.images.folders import (
    ARRAY_EXTENSION,
    IMAGE_EXTENSIONS,
    warn_skipped,
)
from pirl_plugin.images.names import DISK_FOLDER, DISK_SHARDS
from pirl_plugin.images.source import ImageSource
from pirl_plugin.system.failures import Refused
from pirl_plugin.system.text import truncate

_LARGEST_PADDING = 1 << 20  # zero bytes at the end of a tar; tar pads to 10,240 by default


class ShardSource(ImageSource):
    """The images in a tar, or in all tars in a folder by name, in member order.

    Each start reads the headers of all members.

    Args:
        path: ``NAME.tar``, or a folder with ``*.tar``.
        columns: in WebDataset layout, the image among several with one key: ``rgb.jpg`` or ``rgb``
            for ``KEY.rgb.jpg``.

    Raises:
        ValueError: there are no images, or several with one key and no choice, or a tar is
            truncated.
    """

    kind = "tars"
    registered_name = DISK_SHARDS
    label_hint = "Add class folders, or a KEY.cls for KEY.jpg."
    folders_are_labels = True

    def __init__(self, path: str | os.PathLike[str], columns: Columns = BY_NAME) -> None:
        folder = Path(path)
        tars = [folder]
        if not folder.is_file():
            tars = sorted(file for file in folder.iterdir() if file.suffix.lower() == ".tar")
        if not tars:
            raise Refused(
                f"{path} contains no .tar files. For the images in a folder, choose the data "
                f"source {DISK_FOLDER}."
            )
        self._tars = list(map(str, tars))
        entries: list[Entry] = []
        locations: list[tuple[int, int, int]] = []  # tar number, offset and size in bytes
        skipped: Counter[str] = Counter()
        for number, tar in enumerate(self._tars):
            contents, label_of_key = scan_tar(tar, skipped)
            for name in _choose_images(contents, skipped, columns.image, tar):
                locations.append((number, contents[name].offset_data, contents[name].size))
                stem = os.path.splitext(name)[0].lower()
                key, _ = _key_and_column(name)
                entries.append(Entry(name, label_of_key.get(stem, label_of_key.get(key))))
        if skipped:
            warn_skipped(os.fspath(path), skipped)
        self._locations = np.array(locations, np.int64)
        super().__init__(path, entries)

    def read(self, row: int) -> bytes:
        """Return an image's content.

        Raises:
            OSError: the tar cannot be read, or has become shorter.
        """
        number, offset, size = self._locations[row].tolist()
        tar = _opened(self._tars[number])
        content = os.pread(tar.fileno(), size, offset)
        if len(content) < size:
            raise OSError(f"{self._tars[number]} ends within the image")
        return content

    def path_of(self, row: int) -> str:
        """Return ``TAR:MEMBER`` for an image, for messages."""
        tar = self._tars[int(self._locations[row, 0])]
        return f"{tar}:{os.fsdecode(self._images[row])}"

    def files(self) -> list[str]:
        """Return the tar paths."""
        return self._tars


@functools.lru_cache(maxsize=128)  # systems allow 256 to 1,024 open files
def _opened(tar: str) -> FileIO:
    """Return a tar, which stays open, also in forked processes."""
    return open(tar, "rb", buffering=0, opener=open_regular)


def scan_tar(path: str, skipped: Counter[str]) -> tuple[dict[str, tarfile.TarInfo], dict[str, str]]:
    """Find a tar's members from the headers.

    Args:
        path: path to the tar.
        skipped: counts skipped members, by reason.

    Returns:
        Name → member, in tar order; and WebDataset's key, in lower case → label.

    Raises:
        ValueError: it is not a complete tar.
    """
    contents: dict[str, tarfile.TarInfo] = {}
    labels: dict[str, str] = {}
    try:
        with (
            open(path, "rb", opener=open_regular) as file,
            tarfile.open(fileobj=file, mode="r:") as tar,
        ):
            for member in _complete_members(tar, file):
                name = os.path.normpath(member.name)  # for ./cat/1.jpg
                if member.isdir() or os.path.basename(name).startswith("."):
                    continue
                if not member.isreg():
                    skipped["links and devices"] += 1
                    continue
                contents[name] = member  # the last one, as when unpacking
                stem, suffix = os.path.splitext(name.lower())
                if suffix == ".cls":
                    text = tar.extractfile(member).read()  # type: ignore[union-attr]
                    labels[stem] = text.decode().strip()
    except (tarfile.TarError, ValueError, OSError) as error:
        raise Refused(f"{path} is not a complete tar ({error}). Create it again.") from None
    return contents, labels


def _choose_images(
    names: Collection[str], skipped: Counter[str], chosen: int | str | None, tar: str
) -> list[str]:
    """Return the image names in a tar, one per key, and count the others.

    In WebDataset, a member's key ends at the first dot in the file name, and the rest names the
    column. Among images with one key, the user's column is used, or else the one whose column is
    only an extension; among several of these, the most common extension (``KEY.jpg`` rather than
    ``KEY.png``). If columns do not recur with other keys, the dots are part of the names.

    Args:
        names: the names in the tar.
        skipped: counts the other members, by reason.
        chosen: the user's image column.
        tar: the tar, for messages.

    Raises:
        Refused: the user has to choose a column, or chose one that does not exist.
    """
    extensions: tuple[str, ...] = IMAGE_EXTENSIONS
    if not any(name.lower().endswith(extensions) for name in names):
        extensions = (ARRAY_EXTENSION,)
    num_images = 0
    images_of_key: dict[str, dict[str, str]] = {}  # key → column → image
    for name in names:
        key, column = _key_and_column(name)
        suffix = os.path.splitext(name)[1].lower()
        if suffix in extensions:
            num_images += 1
            images_of_key.setdefault(key, {})[column] = name
        elif suffix != ".cls":
            skipped[suffix or "no extension"] += 1
    columns = sorted(set().union(*images_of_key.values()))
    wanted = [name for name in columns if str(chosen).lower() in (name, os.path.splitext(name)[0])]
    if chosen is not None and not wanted:
        raise Refused(
            f"`image_column` = {chosen} is not a column of images in {tar}. Choose one of "
            f"{', '.join(columns)}."
        )
    preferred = wanted or [suffix[1:] for suffix in extensions]
    used = []
    for images in images_of_key.values():
        selected = [name for name in preferred if name in images]
        if chosen is None:
            selected = selected[:1] or list(images)
            if len(selected) > 1 and len(columns) < len(images_of_key):
                raise Refused(
                    f"{tar} has several images with one key, such as "
                    f"{truncate(list(images.values()))}. Choose one of the columns "
                    f"{truncate(columns)} as `image_column`."
                )
        used += [images[name] for name in selected]
    if num_images > len(used):
        skipped["images beside an image with the same key"] += num_images - len(used)
    return used


def _key_and_column(name: str) -> tuple[str, str]:
    """Return WebDataset's key and column for a member, in lower case.

    Example:
        >>> _key_and_column("a.b/12.RGB.jpg")
        ('a.b/12', 'rgb.jpg')
    """
    folder, basename = os.path.split(name.lower())
    key, _, column = basename.partition(".")
    return os.path.join(folder, key), column


def _complete_members(tar: tarfile.TarFile, file: BinaryIO) -> Iterator[tarfile.TarInfo]:
    """Yield a tar's members, and check that it ends like a tar.

    ``tarfile`` mistakes the end of the file, or a damaged header, for the end of the archive.

    Raises:
        ValueError: the tar does not end with zeros.
    """
    yield from tar
    file.seek(tar.offset)
    ending = file.read(_LARGEST_PADDING + 1)
    if not tarfile.BLOCKSIZE <= len(ending) <= _LARGEST_PADDING or any(ending):
        raise ValueError(f"it does not end at byte {tar.offset}, after its last member")
