"""Which images a tar holds, and where in it: read from its headers, kept in an index."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pirl_plugin.files import atomic_write
from pirl_plugin.images.formats import image_extensions

INDEX = "index.npz"
NO_LABEL = -1
MEMBERS = np.dtype([("shard", "<i4"), ("offset", "<i8"), ("size", "<i8"), ("label", "<i8")])
"""Of each image: number of its tar, first byte and length in it, and class."""


def scan_tar(path: Path, shard: int) -> tuple[list[str], NDArray[Any]]:
    """Find the images of a tar by its headers: of each key the first, named ``KEY.jpg`` or alike.

    What else belongs to a key, as ``KEY.seg.png``, and names that start with a dot are skipped.
    It is whole where a block of zeros follows the last member, and nothing but zeros after that.

    Args:
        path: of the tar.
        shard: its number.

    Returns:
        Names of the images, and ``MEMBERS`` rows (n,), label −1 where there is no ``.cls``.

    Raises:
        ValueError: it is not a whole tar, an image or class in it is a link or sparse, or a class
            is no number.
    """
    images: dict[str, tuple[str, int, int]] = {}
    classes: dict[str, tuple[str, bytes]] = {}
    wanted = {".cls", *image_extensions()}
    try:
        with tarfile.open(path, "r:") as tar:
            for member in tar:
                key, suffix = _split(member.name)
                if key.endswith("/") or suffix not in wanted:
                    continue
                if member.islnk() or member.issym() or member.issparse():
                    raise ValueError(
                        f"{member.name} is a link or sparse; tar -h --hard-dereference writes files"
                    )
                if not member.isreg():
                    continue
                if suffix == ".cls":
                    content = tar.extractfile(member)
                    classes[key] = (member.name, content.read(32) if content else b"")
                else:
                    images.setdefault(key, (member.name, member.offset_data, member.size))
            _check_end(path, tar.offset)
    except (tarfile.TarError, ValueError, OSError) as error:
        raise ValueError(
            f"{path} is not a whole tar of files ({error}): expected one; copy or make it again"
        ) from None
    labels = {key: _label(path, *found) for key, found in classes.items()}
    names = [name for name, _, _ in images.values()]
    rows = [(shard, at, size, labels.get(key, NO_LABEL)) for key, (_, at, size) in images.items()]
    return names, np.array(rows, MEMBERS)


def _label(path: Path, name: str, content: bytes) -> int:
    """The class that a ``.cls`` of a tar holds; ours hold -1 for none."""
    try:
        label = int(content)
    except ValueError:
        label = NO_LABEL - 1
    if not NO_LABEL <= label < 2**63:
        raise ValueError(
            f"{path}: {name} = {content.decode(errors='backslashreplace')!r}: expected a class in "
            f"digits, 0 to 2**63 - 1; number the classes, and make the tar again"
        )
    return label


def _check_end(path: Path, end: int) -> None:
    """Refuse a tar that does not end after its last member, or holds something beyond.

    Args:
        path: of the tar.
        end: first byte after its last member.

    Raises:
        ValueError: it is cut short, damaged, or several tars in one file.
    """
    with open(path, "rb") as file:
        file.seek(end)
        if len(file.read(tarfile.BLOCKSIZE)) < tarfile.BLOCKSIZE:
            raise ValueError(f"it is cut off at byte {end}, without a block of zeros")
        file.seek(end)
        while block := file.read(1 << 20):
            if block.count(0) < len(block):
                raise ValueError(f"from byte {end} on it holds damage, or another tar, no zeros")


def scan_tars(tars: list[Path]) -> tuple[list[str], NDArray[Any]]:
    """:func:`scan_tar` of all tars, joined."""
    found = [scan_tar(tar, shard) for shard, tar in enumerate(tars)]
    names = [name for tar_names, _ in found for name in tar_names]
    return names, np.concatenate([np.empty(0, MEMBERS), *(rows for _, rows in found)])


def _split(name: str) -> tuple[str, str]:
    """Key and suffix of a member: WebDataset's key ends at the first dot of the file's name.

    The key of a file whose name starts with a dot ends with ``/``.
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
    before = [tar.stat() for tar in tars]
    names, members = scan_tars(tars)
    with atomic_write(folder / INDEX) as file:
        np.savez_compressed(
            file,
            tars=np.array([tar.name for tar in tars], dtype=str),
            tar_sizes=np.array([found.st_size for found in before], dtype=np.int64),
            tar_times=np.array([found.st_mtime_ns for found in before], dtype=np.int64),
            names=np.array(names, dtype=str),
            members=members,
        )
    return len(members)
