"""Finding image files, and keeping millions of their paths in little memory."""

import os
from collections.abc import Iterable, Iterator

import numpy as np

IMAGE_EXTENSIONS = (
    ".jpg", ".jpeg", ".png", ".ppm", ".pgm", ".bmp", ".tif", ".tiff", ".webp", ".gif",
)  # fmt: skip


class PathTable:
    """An immutable list of paths: one blob of bytes and the offsets of the paths in it.

    A million paths of 40 characters take 48 MB, against some 100 MB as Python strings, and are
    pickled to a worker as two blocks.

    Args:
        paths: the paths, as strings (also undecodable ones, as ``os.fsdecode`` gives them).

    Example:
        >>> table = PathTable(["a/1.jpg", "b/2.jpg"])
        >>> len(table), table[1]
        (2, 'b/2.jpg')
    """

    def __init__(self, paths: Iterable[str]) -> None:
        encoded = [os.fsencode(path) for path in paths]
        self._blob = b"".join(encoded)
        self._ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, index: int) -> str:
        if not -len(self) <= index < len(self):
            raise IndexError(f"path {index} of {len(self)}")
        index %= len(self)
        return os.fsdecode(self._blob[self._ends[index] : self._ends[index + 1]])

    def __iter__(self) -> Iterator[str]:
        return (self[index] for index in range(len(self)))


def find_images(folder: str) -> Iterator[str]:
    """Find the images below a folder, by extension, in a fixed order.

    The images of the folder itself come first, then those of each first-level subfolder (its
    class) in order of name; within one, folders by path and files by name, as torchvision's
    ``ImageFolder`` orders them. Names that start with a dot are skipped. Links to folders are
    followed, unless they lead back to a folder that contains them.

    Args:
        folder: an existing folder.

    Yields:
        Paths relative to ``folder``.
    """
    yield from _images_in(folder, "", sorted(os.listdir(folder)))
    for name in class_folders(folder):
        walked = []
        for root, folders, files in os.walk(os.path.join(folder, name), followlinks=True):
            folders[:] = [sub for sub in folders if _enters(root, sub)]
            walked.append((root, files))
        for root, files in sorted(walked):
            yield from _images_in(root, os.path.relpath(root, folder), sorted(files))


def class_folders(folder: str) -> list[str]:
    """Names of the first-level subfolders, sorted; those that start with a dot are skipped."""
    with os.scandir(folder) as entries:
        return sorted(e.name for e in entries if e.is_dir() and not e.name.startswith("."))


def _images_in(root: str, prefix: str, names: list[str]) -> Iterator[str]:
    for name in names:
        if name.lower().endswith(IMAGE_EXTENSIONS) and not name.startswith("."):
            if prefix or os.path.isfile(os.path.join(root, name)):
                yield os.path.join(prefix, name)


def _enters(root: str, name: str) -> bool:
    """Whether a walk may enter this subfolder: not hidden, and not a link to its own ancestor."""
    path = os.path.join(root, name)
    if name.startswith("."):
        return False
    if not os.path.islink(path):
        return True
    target = os.path.realpath(path)
    return os.path.commonpath([target, os.path.realpath(root)]) != target
