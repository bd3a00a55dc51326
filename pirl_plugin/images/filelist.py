"""Images in a list: an array of strings, a table, or a text file with a path on each line."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import TextIO

import numpy as np

from pirl_plugin.images.classes import Classes, NoLabels, name_classes
from pirl_plugin.images.columns import BY_NAME, Columns, choose
from pirl_plugin.images.decode import open_regular
from pirl_plugin.images.folders import IMAGE_EXTENSIONS
from pirl_plugin.images.names import LISTS
from pirl_plugin.images.source import ImageSource, printable, warn_once
from pirl_plugin.system.failures import MissingFile, Refused

_DELIMITERS = (",", ";", "\t")
_TABLES = (".csv", ".tsv")
_FILES_TO_CHECK = 8


class FileListSource(ImageSource):
    """The images in a list; relative paths start at the list's folder.

    A line of a ``.txt`` is a path, or a path, space or tab, and a label. A line that begins with
    ``#`` is a comment. Tables, ``.csv`` and ``.tsv``, have a header, with comma, semicolon or tab;
    a line of a ``.jsonl`` is an object, such as in ``metadata.jsonl``. A ``.npy`` is an array (N,)
    of strings.

    Args:
        path: path of the list.
        remove_prefix: a prefix of the paths, which ``new_prefix`` replaces.
        new_prefix: new prefix of all paths.
        columns: names of the columns of paths and labels.

    Raises:
        FileNotFoundError: the list does not exist, or the first files in it do not exist.
        ValueError: it has no image, a line without a path, or cannot be read.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        remove_prefix: str = "",
        new_prefix: str = "",
        columns: Columns = BY_NAME,
    ) -> None:
        file = os.fspath(path)
        rows = _Rows(file, columns)
        labels: list[str | None] = []

        def paths() -> Iterator[str]:
            for image, label in rows:
                labels.append(label)
                yield new_prefix + image.removeprefix(remove_prefix)

        super().__init__(file, paths(), os.path.dirname(file))
        self.say_repeated()
        has_labels = any(label is not None for label in labels)
        self._classes_of_labels = name_classes(labels) if has_labels else None
        self._other_columns = rows.other_columns
        first = [self.path_of(row) for row in range(min(_FILES_TO_CHECK, len(self)))]
        if not any(map(os.path.exists, first)):  # otherwise all images would be grey
            ending = "" if os.path.splitext(first[0])[1] else " with their endings, such as .jpg,"
            raise MissingFile(
                f"{file} names {printable(first[0])}: expected paths{ending} relative to the "
                f"list's folder, or from the root, and none of the first {len(first)} files exists"
            )

    def _find_classes(self) -> Classes:
        """Return the classes of the list's labels; if it has none, each image's folder is one.

        Raises:
            NoLabels: no column is known to have labels, or the folders have different parents.
        """
        if self._classes_of_labels is not None:
            return self._classes_of_labels
        if self._other_columns:
            raise NoLabels(f"{self.path}: {choose('label', self._other_columns)}")
        folders = [os.path.dirname(path) for path in self.paths()]
        names = set(map(os.path.basename, folders))
        if len(set(map(os.path.dirname, folders))) > 1 or len(names) < 2:
            raise NoLabels(
                f"{self.path} has no labels: expected a label for each image, or paths "
                f"DIR/CLASS/IMAGE"
            )
        warn_once(
            f"{self.path} has no labels: the class of each of its {len(self)} images is its "
            f"folder, one of {len(names)} in {os.path.dirname(folders[0])}"
        )
        return name_classes(map(os.path.basename, folders), order=sorted(names))


class _Rows:
    """Path and label of each image in a list.

    Attributes:
        other_columns: the columns of a table if none of them is known to have labels.
    """

    def __init__(self, file: str, columns: Columns) -> None:
        self._file = file
        self._columns = columns
        self.other_columns: list[str] = []

    def __iter__(self) -> Iterator[tuple[str, str | None]]:
        kind = os.path.splitext(self._file)[1].lower()
        if kind == ".npy":
            return ((path, None) for path in _paths_of_array(self._file))
        if kind in _TABLES:
            return self._of_table()
        if kind == ".jsonl":
            return self._of_json_lines()
        if kind == ".txt":
            return self._of_text()
        raise Refused(f"{self._file}: expected a list of images, a file *{', *'.join(LISTS)}")

    def _of_text(self) -> Iterator[tuple[str, str | None]]:
        endings = "|".join(map(re.escape, IMAGE_EXTENSIONS))
        # The path ends at the last ending of an image before a space or tab, or else at a tab.
        with_label = re.compile(rf"(.*(?:{endings}))[ \t]+(\S.*)|([^\t]+)\t+(\S.*)", re.IGNORECASE)
        is_image = re.compile(rf".*(?:{endings})", re.IGNORECASE)
        comments = 0
        with _open_text(self._file) as lines:
            for line in map(str.strip, lines):
                match = with_label.fullmatch(line)
                if line.startswith("#"):
                    comments += 1
                elif match and not is_image.fullmatch(line):
                    yield match[1] or match[3], match[2] or match[4]
                elif line:
                    yield line, None
        if comments:
            warn_once(f"{self._file}: skipped: {comments} comments, lines that begin with #")

    def _of_table(self) -> Iterator[tuple[str, str | None]]:
        with _open_text(self._file) as lines:
            first = next((line for line in lines if line.strip()), "")
            delimiter, header = self._header(first)
            path_column, label_column = self._choose(header)
            try:
                reader = csv.reader(lines, delimiter=delimiter)
                for number, cells in enumerate(reader, 2):
                    if any(cells):
                        values = dict(zip(header, map(str.strip, cells), strict=False))
                        yield self._row(number, values, path_column, label_column)
            except csv.Error as error:
                raise Refused(f"{self._file} cannot be read as a table ({error})") from None

    def _header(self, line: str) -> tuple[str, list[str]]:
        """Return the delimiter at which the first line has a column of images, and its columns.

        Raises:
            Refused: there is no such delimiter.
        """
        for delimiter in _DELIMITERS:
            header = [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter), [])]
            chosen = Columns(self._columns.image if self._columns.image in header else None)
            if chosen.find_image(header, self._file) is not None:
                return delimiter, header
        cells = map(printable, re.split("[,;\t]", line.strip()[:200]))
        raise Refused(
            f"{self._file}: expected a header with comma, semicolon or tab in its first line; "
            f"{choose('image', cells)}, or write a .txt, with lines PATH LABEL"
        )

    def _of_json_lines(self) -> Iterator[tuple[str, str | None]]:
        columns: tuple[str, str | None] | None = None
        with _open_text(self._file) as lines:
            for number, line in enumerate(lines, 1):
                try:
                    values = json.loads(line) if line.strip() else None
                except ValueError as error:
                    raise Refused(f"{self._file}: line {number} is no JSON ({error})") from None
                if isinstance(values, dict):
                    columns = columns or self._choose(list(values))
                    yield self._row(number, values, *columns)

    def _choose(self, header: list[str]) -> tuple[str, str | None]:
        """Choose the columns of paths and of labels, and say which they are."""
        path_column = self._columns.find_image(header, self._file)
        if path_column is None:
            raise Refused(f"{self._file}: {choose('image', header)}")
        label_column = self._columns.find_label(header, self._file)
        remaining = [column for column in header if column not in ("", path_column)]
        self.other_columns = remaining if label_column is None else []
        labels = f", labels from {label_column!r}" if label_column else ""
        warn_once(f"{self._file}: paths from the column {path_column!r}{labels}")
        return path_column, label_column

    def _row(
        self, number: int, values: Mapping[str, object], path_column: str, label_column: str | None
    ) -> tuple[str, str | None]:
        path = values.get(path_column)
        label = values.get(label_column) if label_column else None
        if not path:
            raise Refused(
                f"{self._file}: row {number} has no {path_column!r}: expected a path in each row; "
                f"remove the row"
            )
        return str(path), None if label is None else str(label)


def _paths_of_array(file: str) -> Iterator[str]:
    os.close(open_regular(file, os.O_RDONLY))
    try:
        array = np.lib.format.open_memmap(file, mode="r")  # it never unpickles, as np.load can
    except ValueError as error:
        raise Refused(f"{file} is no array of strings, or is damaged ({error})") from error
    if array.ndim != 1 or array.dtype.kind not in "US":
        raise Refused(f"{file} holds {array.shape} of {array.dtype}: expected (N,) strings")
    return map(os.fsdecode, array)


def _open_text(file: str) -> TextIO:
    # "utf-8-sig": editors on Windows begin a file with a byte-order mark.
    return open(
        file, encoding="utf-8-sig", errors="surrogateescape", newline="", opener=open_regular
    )
