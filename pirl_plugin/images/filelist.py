"""Images in a list: an array of strings, a table, or a text file with a path on each line."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from pirl_plugin.images.decode import open_regular
from pirl_plugin.images.folders import class_folders, image_extensions
from pirl_plugin.images.names import LISTS
from pirl_plugin.images.shared import PathTable
from pirl_plugin.images.source import ImageSource, printable, warn_once
from pirl_plugin.system.failures import MissingFile, Refused

_PATH_COLUMNS = ("path", "file", "filename", "image")
_LABEL_COLUMNS = ("label", "class", "target")
_FILES_TO_CHECK = 8


class FileListSource(ImageSource):
    """The images in a list; relative paths start at the list's folder.

    Args:
        path: path of the list: a ``.npy`` array (N,) of strings; a ``.csv`` with a header for path
            (``path``, ``file``, ``filename``, ``image``) and label (``label``, ``class``,
            ``target``), or with lines ``path[,label]``; or a ``.txt`` with lines ``path`` or
            ``path label``. Lines that begin with ``#`` are comments. Labels are whole numbers (−1:
            no class), or names, which are numbered in their order.
        remove_prefix: a prefix of the paths, which ``new_prefix`` replaces.
        new_prefix: new prefix of all paths.

    Raises:
        FileNotFoundError: the list does not exist, or the first files in it do not exist.
        ValueError: it has fewer than two images, a line without path or label, or cannot be read.
    """

    def __init__(
        self, path: str | os.PathLike[str], remove_prefix: str = "", new_prefix: str = ""
    ) -> None:
        file = os.fspath(path)
        names: list[str] = []  # labels as they are written

        def paths() -> Iterator[str]:
            for image, label in _rows(file):
                if label is not None:
                    names.append(label)
                yield new_prefix + image.removeprefix(remove_prefix)

        images = PathTable(paths())
        if names and len(names) != len(images):
            raise Refused(
                f"{file} has {len(names)} labels for {len(images)} images: expected a label for "
                f"each image, or none"
            )
        labels = None
        if names:
            distinct, labels = np.unique(names, return_inverse=True)
            if all(re.fullmatch("-?[0-9]+", name) for name in distinct):
                labels = distinct.astype(np.int64)[labels]
            else:
                self.classes = distinct.tolist()
        super().__init__(file, images, os.path.dirname(file), labels)
        first = [self.path_of(row) for row in range(min(_FILES_TO_CHECK, len(images)))]
        if not any(map(os.path.exists, first)):  # otherwise all images would be grey
            raise MissingFile(
                f"{file} names {printable(first[0])}: expected paths relative to the list's "
                f"folder, or from the root, and none of the first {len(first)} files exists"
            )

    def labels(self) -> NDArray[np.int64]:
        """Return the list's labels; if it has none, the number of each image's folder.

        Raises:
            ValueError: the images' folders have different parents.
        """
        if self._labels is None:
            folders = [os.path.dirname(path) for path in self.paths()]
            parent = os.path.dirname(os.path.abspath(folders[0]))
            self.classes = class_folders(parent)
            numbers = {name: number for number, name in enumerate(self.classes)}
            try:
                labels = [numbers[os.path.basename(folder)] for folder in folders]
            except KeyError as error:
                raise Refused(
                    f"{self.path} lists an image in a folder {error}, which is not beside "
                    f"{folders[0]}: expected DIR/CLASS/IMAGE, or a label after each path"
                ) from None
            warn_once(
                f"{self.path} has no labels: the class of each of its {len(self)} images is its "
                f"folder, one of {len(numbers)} in {parent}"
            )
            self._labels = np.array(labels, np.int64)
        return self._labels


def _rows(file: str) -> Iterator[tuple[str, str | None]]:
    """Yield path and label (None if the list has none) of each image."""
    kind = os.path.splitext(file)[1].lower()
    if kind == ".npy":
        return ((path, None) for path in _paths_of_array(file))
    if kind == ".csv":
        return _rows_of_table(file)
    if kind == ".txt":
        return _rows_of_text(file)
    raise Refused(f"{file}: expected a list of images, a file *{', *'.join(LISTS)}")


def _paths_of_array(file: str) -> Iterator[str]:
    os.close(open_regular(file, os.O_RDONLY))
    try:
        array = np.lib.format.open_memmap(file, mode="r")  # it never unpickles, as np.load can
    except ValueError as error:
        raise Refused(f"{file} is no array of strings, or is damaged ({error})") from error
    if array.ndim != 1 or array.dtype.kind not in "US":
        raise Refused(f"{file} holds {array.shape} of {array.dtype}: expected (N,) strings")
    return map(os.fsdecode, array)


def _rows_of_text(file: str) -> Iterator[tuple[str, str | None]]:
    with _open_text(file) as lines:
        _, rows = _split_header(file, map(_split, lines))
        for _, cells in rows:
            yield cells[0], cells[1] if len(cells) > 1 else None


def _rows_of_table(file: str) -> Iterator[tuple[str, str | None]]:
    with _open_text(file) as lines:
        try:
            header, rows = _split_header(file, csv.reader(lines))
            path_column, label_column = _columns(file, header)
            for number, cells in rows:
                cells = [*cells, *[""] * len(header)]  # a short row ends with empty cells
                path = cells[path_column]
                label = None
                if label_column is not None and label_column < len(cells):
                    label = cells[label_column]
                if path == "" or label == "":
                    raise Refused(
                        f"{file}: row {number} has no {'label' if path else 'path'}: give each "
                        f"image one, or remove the column"
                    )
                yield path, label
        except csv.Error as error:
            raise Refused(f"{file} cannot be read as a table ({error})") from None


def _open_text(file: str) -> TextIO:
    # "utf-8-sig": editors on Windows begin a file with a byte-order mark.
    return open(
        file, encoding="utf-8-sig", errors="surrogateescape", newline="", opener=open_regular
    )


def _split_header(
    file: str, rows: Iterable[list[str]]
) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    """Return the cells of the header, if there is one, and number and cells of each other row.

    A header has the name of a column. Or else it has no path of an image, and the second row has.
    """
    filled = _without_comments(file, rows)
    beginning = list(islice(filled, 2))
    if not beginning:
        return [], filled
    _, first = beginning[0]
    _, second = beginning[-1]  # the first again, if there is only one
    has_names = _names_a_column(first)
    header: list[str] = []
    if not _has_image(first) and (has_names or _has_image(second)):
        number, header = beginning.pop(0)
        if not has_names:
            warn_once(f"{file}: row {number} is taken as a header: {', '.join(header)}")
    return header, chain(beginning, filled)


def _without_comments(file: str, rows: Iterable[list[str]]) -> Iterator[tuple[int, list[str]]]:
    """Yield number and cells of each row that is neither empty nor a comment."""
    comments = 0
    for number, row in enumerate(rows, 1):
        cells = [cell.strip() for cell in row]
        if cells and cells[0].startswith("#") and not _has_image(cells):
            comments += 1
        elif any(cells):
            yield number, cells
    if comments:
        warn_once(f"{file}: skipped: {comments} comments")


def _names_a_column(cells: list[str]) -> bool:
    words = " ".join(cells).lower().split()
    return not {*_PATH_COLUMNS, *_LABEL_COLUMNS}.isdisjoint(words)


def _has_image(cells: Iterable[str]) -> bool:
    return any(cell.lower().endswith(image_extensions()) for cell in cells)


def _columns(file: str, header: list[str]) -> tuple[int, int | None]:
    """Return the columns of path and label, by name, by default 0 and 1; None if there is none."""
    heads = [head.lower() for head in header]
    path_column = next((heads.index(name) for name in _PATH_COLUMNS if name in heads), 0)
    for name in _LABEL_COLUMNS:
        if name in heads:
            return path_column, heads.index(name)
    if path_column == 1 or len(heads) == 1:
        return path_column, None
    if header:
        warn_once(f"{file}: the column {header[1]!r} is taken as the label")
    return path_column, 1


def _split(line: str) -> list[str]:
    """Split ``path label``; a path may contain spaces."""
    line = line.strip()
    words = line.rsplit(None, 1)
    has_label = len(words) == 2 and _has_image(words[:1]) and not _has_image([line])
    return words if has_label else [line]
