"""Images in a list: an array of strings, a table, or a text file with a path on each line."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pirl_plugin.failures import MissingFile, Refused
from pirl_plugin.images.folders import class_folders, image_extensions
from pirl_plugin.images.shared import PathTable
from pirl_plugin.images.sources import ImageSource

_COLUMNS = (("path", "file", "filename", "image"), ("label", "class", "target"))
_SAMPLE = 8


class FileListSource(ImageSource):
    """The images in a list; relative paths start at the list's folder.

    Args:
        path: path of the list: a ``.npy`` array (N,) of strings; a ``.csv`` with a header for path
            (``path``, ``file``, ``filename``, ``image``) and label (``label``, ``class``,
            ``target``), or with lines ``path[,label]``; or a text file with lines ``path`` or
            ``path label``.
        remove_prefix: a prefix of the paths, which ``new_prefix`` replaces.
        new_prefix: new prefix of all paths.

    Raises:
        FileNotFoundError: the list does not exist, or the first files in it do not exist.
        ValueError: it has fewer than two images, or cannot be read.
    """

    def __init__(
        self, path: str | os.PathLike[str], remove_prefix: str = "", new_prefix: str = ""
    ) -> None:
        names: list[str] = []

        def paths() -> Iterator[str]:
            for image, *label in _rows(os.fspath(path)):
                names.extend(label)
                yield new_prefix + image.removeprefix(remove_prefix)

        images = PathTable(paths())
        labels = None
        if names:
            known, labels = np.unique(names, return_inverse=True)
            if all(name.isdigit() for name in known):
                labels = known.astype(np.int64)[labels]
            else:
                self.classes = known.tolist()
        super().__init__(path, images, os.path.dirname(os.fspath(path)), labels)
        if labels is not None and len(labels) != len(images):
            raise Refused(f"{self.path} has {len(labels)} labels of {len(images)} images")
        first = [self.path_of(row) for row in range(min(_SAMPLE, len(images)))]
        if not any(map(os.path.exists, first)):  # otherwise all images would be grey
            raise MissingFile(
                f"{self.path} names {first[0]}: expected paths relative to the list's folder, or "
                f"from the root, and none of the first {len(first)} files exists"
            )

    def labels(self) -> NDArray[np.int64]:
        """Return the list's labels; if it has none, the number of each image's folder.

        Raises:
            ValueError: the images' folders have different parents.
        """
        if self._labels is None:
            folders = [os.path.dirname(path) for path in self.paths()]
            known = class_folders(os.path.dirname(os.path.abspath(folders[0])))
            numbers = {name: number for number, name in enumerate(known)}
            try:
                found = [numbers[os.path.basename(folder)] for folder in folders]
            except KeyError as error:
                raise Refused(
                    f"{self.path} lists an image in a folder {error}, which is not beside "
                    f"{folders[0]}: expected DIR/CLASS/IMAGE, or a label after each path"
                ) from None
            self._labels = np.array(found, np.int64)
        return self._labels


def _rows(file: str) -> Iterator[list[str]]:
    """Yield ``[path]`` or ``[path, label]`` of each image of a list."""
    if file.endswith(".npy"):
        array = np.load(file, mmap_mode="r")
        if array.ndim != 1 or array.dtype.kind not in "US":
            raise Refused(f"{file} holds {array.shape} of {array.dtype}: expected (N,) strings")
        yield from ([os.fsdecode(path)] for path in array)
        return
    # "utf-8-sig": editors on Windows begin a file with a byte-order mark.
    with open(file, encoding="utf-8-sig", errors="surrogateescape", newline="") as lines:
        if not file.endswith(".csv"):
            yield from map(_split, filter(None, map(str.strip, lines)))
            return
        columns = [0, 1]
        for number, cells in enumerate(filter(None, csv.reader(lines))):
            heads = [cell.strip().lower() for cell in cells]
            if number or any(head.endswith(image_extensions()) for head in heads):
                yield [cells[column].strip() for column in columns if column < len(cells)]
            else:
                columns = _columns(heads)


def _columns(heads: list[str]) -> list[int]:
    """Return the columns of path and (if different) label: by name, by default 0 and 1."""
    path, label = (
        next((heads.index(name) for name in names if name in heads), place)
        for place, names in enumerate(_COLUMNS)
    )
    return [path] if label == path else [path, label]


def _split(line: str) -> list[str]:
    """Split ``path label``; a path may contain spaces."""
    path, *label = line.rsplit(None, 1)
    extensions = image_extensions()
    has_label = path.lower().endswith(extensions) and not line.lower().endswith(extensions)
    return [path, *label] if has_label else [line]
