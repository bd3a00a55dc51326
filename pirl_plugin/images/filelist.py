"""Images that a list names: an array of strings, a table, or a text file with a path a line."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pirl_plugin.images.folders import class_folders, image_extensions
from pirl_plugin.images.shared import PathTable
from pirl_plugin.images.sources import ImageSource

_PATH_COLUMNS = ("path", "file", "filename", "file_name", "filepath", "image", "image_path", "img")
_LABEL_COLUMNS = ("label", "class", "target", "category", "class_id", "label_id")


class FileListSource(ImageSource):
    """The images that a list names; relative paths are relative to the list's folder.

    Args:
        path: of a ``.npy`` array (N,) of strings; a ``.csv`` or ``.tsv`` with or without a header,
            ``path[,label]``; or a text file with a path, or ``path label``, a line.
        remove_prefix: what a path starts with is replaced by ``new_prefix``.
        new_prefix: likewise.
        grey_size: side of the image that takes the place of one that cannot be read, pixels.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it names fewer than two images, or cannot be read.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        remove_prefix: str = "",
        new_prefix: str = "",
        grey_size: int = 224,
    ) -> None:
        file = os.fspath(path)
        if not os.path.isfile(file):
            raise FileNotFoundError(f"{file} is not a file that exists: expected a list of images")
        self._names: dict[str, int] = {}
        numbers: list[int] = []
        self._all_digits = True

        def entries() -> Iterator[str]:
            for image, label in _entries(file):
                if label is not None:
                    self._all_digits &= label.isdigit()
                    numbers.append(self._names.setdefault(label, len(self._names)))
                if remove_prefix or new_prefix:
                    image = new_prefix + image.removeprefix(remove_prefix)
                yield image

        images = PathTable(entries())
        labels = None
        if numbers and len(numbers) != len(images):
            raise ValueError(f"{file} has {len(numbers)} labels of {len(images)} images")
        if numbers:
            if self._all_digits:
                values = [int(name) for name in self._names]
                self._names = {}
            else:
                names = sorted(self._names)
                values = [names.index(name) for name in self._names]
                self._names = {name: number for number, name in enumerate(names)}
            labels = np.array(values, np.int64)[numbers]
        super().__init__(path, images, os.path.dirname(file), labels, grey_size)

    def labels(self) -> NDArray[np.int64]:
        """The list's labels; without some, the number of the folder that each image is in.

        Raises:
            ValueError: the images' folders do not lie beside each other.
        """
        if self._labels is None:
            numbers = self.class_numbers()
            self._labels = np.fromiter(
                (numbers[os.path.basename(os.path.dirname(self.path_of(row)))]
                 for row in range(len(self))), np.int64, len(self),
            )  # fmt: skip
        return self._labels

    def class_numbers(self) -> dict[str, int]:
        """Number of each class by its name: of the list's, or of the folders of the images.

        Raises:
            ValueError: the images' folders do not lie beside each other.
        """
        if self._labels is not None:
            return dict(self._names)
        folders = {os.path.dirname(self.path_of(row)) for row in range(len(self))}
        above = sorted({os.path.dirname(os.path.abspath(folder)) for folder in folders})
        known = class_folders(above[0]) if os.path.isdir(above[0]) else []
        if len(above) > 1 or not {os.path.basename(f) for f in folders} <= set(known):
            raise ValueError(
                f"{self.path} lists images in {' and '.join(sorted(folders)[:2])}: expected "
                f"DIR/CLASS/IMAGE with one DIR that exists, or a label after each path"
            )
        return {name: number for number, name in enumerate(known)}


def _entries(file: str) -> Iterator[tuple[str, str | None]]:
    """Path and label, None where there is none, of each entry of a list."""
    if file.endswith(".npy"):
        try:
            array = np.load(file, mmap_mode="r", allow_pickle=False)
        except (ValueError, OSError, EOFError) as error:
            raise ValueError(
                f"{file} cannot be read ({error}): save np.array(paths, str)"
            ) from None
        if array.ndim != 1 or array.dtype.kind not in "US":
            raise ValueError(f"{file} holds {array.shape} of {array.dtype}: expected (N,) strings")
        yield from ((os.fsdecode(path), None) for path in array)
        return
    extensions = image_extensions()
    # "utf-8-sig": editors on Windows begin a file with a byte-order mark.
    with open(file, encoding="utf-8-sig", errors="surrogateescape", newline="") as lines:
        if file.endswith((".csv", ".tsv")):
            yield from _table(csv.reader(lines, delimiter="\t" if file.endswith("tsv") else ","))
            return
        for line in map(str.strip, lines):
            if "\0" in line:
                raise ValueError(f"{file} is no text: expected a list of images")
            path, _, label = line.rpartition(" " if " " in line else "\t")
            if path.rstrip().lower().endswith(extensions) and not label.lower().endswith(
                extensions
            ):
                yield path.rstrip(), label
            elif line:
                yield line, None


def _table(rows: Iterator[list[str]]) -> Iterator[tuple[str, str | None]]:
    """Path and label of each row; the first may be a header, which names the columns."""
    first = [cell.strip() for cell in next(rows, [])]
    heads = [cell.lower() for cell in first]
    path = next((heads.index(name) for name in _PATH_COLUMNS if name in heads), None)
    label = next((heads.index(name) for name in _LABEL_COLUMNS if name in heads), None)
    if path is None:
        has_header = not any(cell.endswith(image_extensions()) for cell in heads)
        path, label = 0, 1 if label is None and len(first) > 1 else label
        if not has_header and first:
            yield first[path], first[label] if label is not None else None
    for row in rows:
        if row:
            yield row[path].strip(), row[label].strip() if label is not None else None
