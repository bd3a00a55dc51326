"""Images in tar files (the WebDataset layout), read in random order through an index.

They suit file systems that are slow with a million small files. The member ``KEY.jpg`` of a tar is
an image, and ``KEY.cls`` has its class: a name, or a number.
"""

from __future__ import annotations

import functools
import os
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pirl_plugin.images.classes import Classes, NoLabels, name_classes
from pirl_plugin.images.decode import open_regular
from pirl_plugin.images.folders import IMAGE_EXTENSIONS, say_skipped
from pirl_plugin.images.names import INDEX
from pirl_plugin.images.source import ImageSource, content_stamp, warn_once
from pirl_plugin.system.failures import Refused
from pirl_plugin.system.files import atomic_write
from pirl_plugin.system.text import printable

MEMBERS = np.dtype([("shard", "<i4"), ("offset", "<i8"), ("size", "<i8"), ("label", "<i4")])
"""For each image: number of its tar, first byte and length in the tar, and number of its label."""
_NO_LABEL = -1  # of an image without .cls
_LARGEST_LABEL = 4096  # bytes of a .cls
_LARGEST_PADDING = 1 << 20  # bytes of zeros at the end of a tar; tar pads to 10,240 by default


class Members(NamedTuple):
    """The images in tars: their names, ``MEMBERS`` rows (n,), and the labels that rows number."""

    names: list[str]
    rows: NDArray[Any]
    labels: list[str]


class ShardSource(ImageSource):
    """The images in the tar files of a folder, in the order of the tars' names and of the members.

    ``pirl-plugin prepare --shards`` writes such folders, with an index. Without an index of these
    tars, the headers of all members are read at each start.

    Args:
        path: folder with ``*.tar``.

    Raises:
        ValueError: it holds no image, a tar is truncated or compressed, or the index
            is damaged or lists a tar that is missing.
    """

    kind = "tars"

    def __init__(self, path: str | os.PathLike[str]) -> None:
        folder = Path(path)
        if packed := sorted([*folder.glob("*.tar.gz"), *folder.glob("*.tgz")]):
            raise Refused(f"{packed[0]} is compressed: expected .tar; unpack it with gunzip")
        stamps = _stamps(folder)
        self._tars = list(stamps)
        self._stamps = list(stamps.values())
        members = _read_index(folder, stamps) or _scan_all(folder, self._tars)
        self._members = members.rows
        self._label_texts = members.labels
        super().__init__(path, members.names)

    def read(self, row: int) -> bytes:
        """Return the content of one image.

        Raises:
            OSError: its tar cannot be read, or has become shorter.
        """
        shard, offset, size, _ = self._members[row].item()
        tar = _opened(os.path.join(self.path, self._tars[shard]), self._stamps[shard])
        content = os.pread(tar.fileno(), size, offset)
        if len(content) < size:
            raise OSError(f"{self._tars[shard]} ends within the image")
        return content

    def size_of(self, row: int) -> int:
        """Return the size of one image, bytes."""
        return int(self._members["size"][row])

    def path_of(self, row: int) -> str:
        """Return ``FOLDER/TAR:MEMBER`` of one image, for messages."""
        tar = self._tars[int(self._members["shard"][row])]
        return f"{os.path.join(self.path, tar)}:{os.fsdecode(self._images[row])}"

    def files(self) -> list[str]:
        """Return the paths of the tars."""
        return [os.path.join(self.path, tar) for tar in self._tars]

    def _find_classes(self) -> Classes:
        """Return the classes of the ``.cls`` members.

        Raises:
            NoLabels: no image has one.
        """
        if not self._label_texts:
            raise NoLabels(f"{self.path} has no labels: expected a KEY.cls beside each KEY.jpg")
        texts = [*self._label_texts, None]  # the last is for _NO_LABEL, −1
        return name_classes(texts[number] for number in self._members["label"].tolist())


@functools.lru_cache(maxsize=128)  # systems allow 256 to 1,024 open files
def _opened(tar: str, stamp: str) -> FileIO:
    """Return a tar that stays open, in forked processes too.

    Raises:
        OSError: it cannot be opened, or has another size or time than its index was made with.
    """
    file = open(tar, "rb", buffering=0, opener=open_regular)
    if content_stamp(tar) != stamp:
        file.close()
        raise OSError(f"{tar} was replaced after its headers were read")
    return file


def _stamps(folder: Path) -> dict[str, str]:
    """Return the names of the tars in a folder, sorted, with size and time of change of each."""
    return {tar.name: content_stamp(tar) for tar in sorted(folder.glob("*.tar"))}


def write_index(folder: Path) -> None:
    """Write the index of all tars of a folder. Raises ``ValueError`` if a tar cannot be read."""
    stamps = _stamps(folder)
    members = _scan_all(folder, list(stamps))
    with atomic_write(folder / INDEX) as file:
        np.savez_compressed(
            file,
            tars=np.array(list(stamps), np.str_),
            stamps=np.array(list(stamps.values()), np.str_),
            names=np.array(members.names, np.str_),
            members=members.rows,
            labels=np.array(members.labels, np.str_),
        )


def _read_index(folder: Path, stamps: dict[str, str]) -> Members | None:
    """Read the index of a folder; return None if there is none, or it is of other tars.

    Raises:
        ValueError: it is damaged, or lists a tar that is missing.
    """
    file = folder / INDEX
    if not file.is_file():
        return None
    try:
        with np.load(file) as index:
            pairs = zip(index["tars"].tolist(), index["stamps"].tolist(), strict=True)
            listed = dict(pairs)
            names = index["names"].tolist()
            members = Members(names, index["members"], index["labels"].tolist())
    except Exception as error:  # zip, zlib and numpy raise many types for damaged files
        raise Refused(
            f"{file} is damaged ({type(error).__name__}: {error}): remove it; then the tars "
            f"themselves are read at each start"
        ) from error
    if missing := sorted(listed.keys() - stamps.keys()):
        raise Refused(
            f"{file} lists {len(listed)} tars, and {missing[0]} is missing: restore it, or remove "
            f"the index to use the other tars only"
        )
    if list(listed.items()) != list(stamps.items()):  # in order: the rows number the tars
        warn_once(
            f"{file} is of other tars, or they were copied without their times (cp -p keeps them): "
            f"the tars themselves are read at each start"
        )
        return None
    return members


def _scan_all(folder: Path, tars: list[str]) -> Members:
    """Find the images of all tars, and count in the log what is left out."""
    names: list[str] = []
    parts = [np.empty(0, MEMBERS)]  # for a folder without tars
    codes: dict[str, int] = {}  # label → its number
    skipped: Counter[str] = Counter()
    for shard, tar in enumerate(tars):
        members = scan_tar(folder / tar, shard, skipped)
        # The tar numbers its own labels: give them the numbers of all tars.
        numbers = [codes.setdefault(label, len(codes)) for label in members.labels]
        rows = members.rows
        rows["label"] = np.array([*numbers, _NO_LABEL])[rows["label"]]
        names += members.names
        parts.append(rows)
    if skipped:
        say_skipped(str(folder), skipped)
    return Members(names, np.concatenate(parts), list(codes))


def scan_tar(path: Path, shard: int, skipped: Counter[str]) -> Members:
    """Find the images of a tar by its headers.

    WebDataset's key of a member ends at the first dot of the file's name. An image with more dots
    in its name (``KEY.seg.png``) is left out if there is an image ``KEY.png`` or similar; otherwise
    it is a separate image. Of several images with one key, the first of the usual extensions is
    taken: ``KEY.jpg`` rather than ``KEY.png``. A hard link is the image that it links to.

    Args:
        path: path of the tar.
        shard: number of the tar.
        skipped: counts members that are left out, by reason.

    Returns:
        The images, in the order of the tar.

    Raises:
        ValueError: it is not a complete tar.
    """
    contents: dict[str, tarfile.TarInfo] = {}  # by name: the member with the content
    labels: dict[str, str] = {}  # by key
    try:
        with (
            open(path, "rb", opener=open_regular) as file,
            tarfile.open(fileobj=file, mode="r:") as tar,
        ):
            for member in _members_to_the_end(tar, file):
                if member.isdir():
                    continue
                content = contents.get(member.linkname) if member.islnk() else member
                stem, suffix = os.path.splitext(member.name)
                if content is None or not content.isreg():
                    skipped["links and devices"] += 1
                    continue
                if member.name in contents:
                    skipped["names that occur twice in a tar"] += 1
                contents[member.name] = content  # the last one, as tar unpacks
                if suffix == ".cls" and content.size <= _LARGEST_LABEL:
                    text = tar.extractfile(content).read()  # type: ignore[union-attr]
                    labels[stem] = text.decode().strip()
    except UnicodeDecodeError as error:
        raise Refused(
            f"{path}: {printable(member.name)} is not UTF-8: {error.object!r}. Write it again."
        ) from None
    except (tarfile.TarError, ValueError, OSError) as error:
        raise Refused(f"{path} is not a whole tar of images ({error}): make it again") from None
    # A row for each image, in the order of the tar; labels are numbered as they come.
    codes: dict[str, int] = {}
    names = []
    rows = []
    for name in _images_of_keys(contents, skipped):
        content = contents[name]
        label = labels.get(os.path.splitext(name)[0])
        code = _NO_LABEL if label is None else codes.setdefault(label, len(codes))
        names.append(name)
        rows.append((shard, content.offset_data, content.size, code))
    return Members(names, np.array(rows, MEMBERS), list(codes))


def _images_of_keys(names: Iterable[str], skipped: Counter[str]) -> list[str]:
    """Return the names of the images of a tar, one for each key, and count the others."""
    best: dict[str, str] = {}  # name without extension → the image of this name
    for name in names:
        stem, suffix = os.path.splitext(name)
        if os.path.basename(name).startswith("."):
            continue
        if suffix.lower() not in IMAGE_EXTENSIONS:
            if suffix != ".cls":
                skipped[suffix.lower() or "no extension"] += 1
            continue
        taken = best.setdefault(stem, name)
        if taken != name:
            skipped["images beside an image of the same key"] += 1
            # Of several images with one name, the extension that comes first is taken.
            rank = IMAGE_EXTENSIONS.index(os.path.splitext(taken)[1].lower())
            if IMAGE_EXTENSIONS.index(suffix.lower()) < rank:
                best[stem] = name
    # WebDataset's key ends at the first dot: KEY.seg.png is left out beside KEY.png.
    images = []
    for stem, name in best.items():
        folder, basename = os.path.split(stem)
        key = os.path.join(folder, basename.partition(".")[0])
        if key == stem or key not in best:
            images.append(name)
        else:
            skipped["images beside an image of the same key"] += 1
    return images


def _members_to_the_end(tar: tarfile.TarFile, file: BinaryIO) -> Iterator[tarfile.TarInfo]:
    """Yield the members of a tar, and check that it ends as a tar does.

    ``tarfile`` takes the end of the file, or a damaged header, for the end of the archive.

    Raises:
        ValueError: the tar does not end with zeros.
    """
    yield from tar
    file.seek(tar.offset)
    ending = file.read(_LARGEST_PADDING + 1)
    if not tarfile.BLOCKSIZE <= len(ending) <= _LARGEST_PADDING or any(ending):
        raise ValueError(f"it does not end at byte {tar.offset}, after its last member")
