"""Images that a list names: an array of strings, or a text file with a path a line."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from pirl_plugin.images.sources.base import ImageSource
from pirl_plugin.images.sources.path_table import MappedPaths, PathTable
from pirl_plugin.images.sources.paths import class_folders


class FileListSource(ImageSource):
    """The images that a list names; relative paths are relative to the list's folder.

    Args:
        path: of a ``.npy`` array ``(N,)`` of strings, or a text file (UTF-8) with a path a line.
        remove_prefix: what a path starts with is replaced by ``new_prefix``.
        new_prefix: likewise.
        mmap: map an array from disk instead of reading it into memory.
        grey_size: side of the image that takes the place of one that cannot be read, pixels.

    Raises:
        FileNotFoundError: there is no such file, or a folder in its place.
        ValueError: it names fewer than two images, or cannot be read.
    """

    wanted = "a .npy array of path strings or a text file with one path a line"

    def __init__(
        self,
        path: str | os.PathLike[str],
        remove_prefix: str = "",
        new_prefix: str = "",
        mmap: bool = True,
        grey_size: int = 224,
    ) -> None:
        if os.path.isdir(path):
            raise FileNotFoundError(f"{os.fspath(path)} is a folder: expected a list of files")
        if not os.path.isfile(path):
            raise FileNotFoundError(self.problem(path, "is not a file that exists"))
        self._prefixes = (remove_prefix, new_prefix)
        file = os.fspath(path)
        try:
            images = MappedPaths(file, mmap) if file.endswith(".npy") else _read_lines(file)
        except ValueError as error:
            raise ValueError(self.problem(path, str(error))) from error
        super().__init__(path, images, root=os.path.dirname(file), grey_size=grey_size)

    def path_of(self, row: int) -> str:
        """Path of one image, its prefix replaced."""
        path, (old, new) = self._images[row], self._prefixes
        if (old or new) and path.startswith(old):
            path = new + path[len(old) :]
        return os.path.join(self._root, path)

    def labels(self) -> NDArray[np.int64]:
        """Index of the folder that each image is in, by name, among the folders beside it.

        Raises:
            ValueError: the images' folders do not lie beside each other.
        """
        index = {name: label for label, name in enumerate(class_folders(self.class_root()))}
        labels = (index[os.path.basename(folder)] for folder in self._folders())
        return np.fromiter(labels, np.int64, len(self))

    def _folders(self) -> Iterator[str]:
        """The folder of each image, one after another: all paths at once would take gigabytes."""
        return (os.path.dirname(self.path_of(row)) for row in range(len(self)))

    def class_root(self) -> str:
        """Folder whose subfolders number the classes of the list.

        Raises:
            ValueError: the images' folders do not lie beside each other, or are not there.
        """
        folders = {os.path.abspath(folder) for folder in set(self._folders())}
        above = sorted({os.path.dirname(folder) for folder in folders})
        if len(above) > 1 or not os.path.isdir(above[0]):
            raise ValueError(
                f"{self.path} is a list of paths in {' and '.join(above[:2])}: expected "
                f"DIR/CLASS/IMAGE with one DIR for all, to take their classes from"
            )
        names = {os.path.basename(folder) for folder in folders}
        missing = sorted(names - set(class_folders(above[0])))
        if missing:
            raise ValueError(
                f"{self.path} names images in {os.path.join(above[0], missing[0])}, which is not "
                f"a folder that exists: the paths of a list are relative to the list's own folder"
            )
        return above[0]


def _read_lines(file: str) -> Sequence[str]:
    # "utf-8-sig": editors on Windows begin a file with a byte-order mark.
    with open(file, encoding="utf-8-sig", errors="surrogateescape") as lines:
        return PathTable(path for path in map(_path, lines) if path)


def _path(line: str) -> str:
    if "\0" in line:
        raise ValueError("is no text")
    return line.strip()
