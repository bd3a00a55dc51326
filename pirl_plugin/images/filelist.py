"""Images in a list: an array of strings, a table, or a text file with one path per line."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import IO, TextIO

import numpy as np

from pirl_plugin.images.classes import (
    MISSING_VALUES,
    NO_CLASS,
    Classes,
    NoLabels,
    name_classes,
    natural_order,
)
from pirl_plugin.images.columns import BY_NAME, Columns, choose
from pirl_plugin.images.decode import open_regular
from pirl_plugin.images.folders import ARRAY_EXTENSION, IMAGE_EXTENSIONS
from pirl_plugin.images.names import LISTS
from pirl_plugin.images.source import ImageSource, warn_once
from pirl_plugin.system.failures import MissingFile, Refused
from pirl_plugin.system.text import printable

_DELIMITERS = (",", ";", "\t")
_TABLES = (".csv", ".tsv", ".jsonl")
_FILES_TO_CHECK = 8

Rows = Iterable[tuple[int, Mapping[str, object]]]
"""Row numbers in a list, and each row's values by column."""


class FileListSource(ImageSource):
    """The images in a list; relative paths are relative to the list's folder.

    In a ``.txt``, a line is a path, or a path, a space or tab, and a label. Lines that begin with
    ``#`` are comments. Tables, ``.csv`` and ``.tsv``, have a header and are separated by commas,
    semicolons or tabs. In a ``.jsonl``, each line is an object, as in ``metadata.jsonl``. A
    ``.npy`` is an array (N,) of strings.

    Args:
        path: path to the list.
        remove_prefix: a prefix of the paths, which ``new_prefix`` replaces.
        new_prefix: new prefix for all paths.
        columns: names of a table's path and label columns.

    Raises:
        FileNotFoundError: the list does not exist, or the first files in it do not exist.
        ValueError: there is no image, a line without a path, or text that is not UTF-8.
    """

    kind = "list"

    def __init__(
        self,
        path: str | os.PathLike[str],
        remove_prefix: str = "",
        new_prefix: str = "",
        columns: Columns = BY_NAME,
    ) -> None:
        file = os.fspath(path)
        is_table = file.lower().endswith(_TABLES)
        if not is_table:
            columns = BY_NAME
        paths = []
        self._labels: list[object] = []
        with open(file, "rb", opener=open_regular) as stream:
            header, rows = _read(stream, file, columns)
            path_column = columns.find("image", header, file)
            if path_column is None:
                raise Refused(f"{file}: {choose('image', header)}")
            label_column = columns.find("label", header, file)
            for number, row in rows:
                image = row.get(path_column)
                if not image:
                    raise Refused(f"{file}: row {number} has no {path_column!r}. Remove the row.")
                paths.append(new_prefix + str(image).removeprefix(remove_prefix))
                self._labels.append(row.get(label_column) if label_column else None)
        self._other_columns: list[str] = []  # of a table without a recognized label column
        if is_table:
            labels = f", labels from {label_column!r}" if label_column else ""
            warn_once(f"{file}: paths from the column {path_column!r}{labels}")
            if label_column is None:
                self._other_columns = [name for name in header if name not in ("", path_column)]
        super().__init__(file, paths, os.path.dirname(file))
        first = [self.path_of(row) for row in range(min(_FILES_TO_CHECK, len(self)))]
        if not any(map(os.path.exists, first)):  # otherwise all images would be unreadable
            ending = "" if os.path.splitext(first[0])[1] else " with their endings, such as .jpg,"
            raise MissingFile(
                f"None of the first {len(first)} files in {file} exists, such as "
                f"{printable(first[0])}. Write paths{ending} that are absolute or relative to the "
                f"list's folder."
            )

    def _find_classes(self) -> Classes:
        """Return the classes from the labels or, without labels, from the images' folders.

        Raises:
            NoLabels: no label column is recognized, an image has two labels, or the folders have
                different parents.
        """
        if any(label is not None for label in self._labels):
            # JSON has its own null, so every text is a name.
            is_json = self.path.lower().endswith(".jsonl")
            texts = {label for label in self._labels if isinstance(label, str) and label.strip()}
            order = natural_order(texts) if is_json else ()
            classes = name_classes(self._labels, order, self.path, MISSING_VALUES)
            self._check_one_label(classes)
            return classes
        if self._other_columns:
            raise NoLabels(f"{self.path}: {choose('label', self._other_columns)}")
        folders = [os.path.dirname(path) for path in self.paths()]
        names = set(map(os.path.basename, folders))
        if len(set(map(os.path.dirname, folders))) > 1 or len(names) < 2:
            raise NoLabels(
                f"{self.path} has no labels. Add a label for each image, or use paths like "
                f"DIR/CLASS/IMAGE."
            )
        warn_once(
            f"{self.path} has no labels. Each of the {len(self)} images gets its folder as class, "
            f"one of {len(names)} in {os.path.dirname(folders[0])}"
        )
        return name_classes(map(os.path.basename, folders), order=sorted(names))

    def _check_one_label(self, classes: Classes) -> None:
        label_of_path: dict[str, int] = {}
        for row, label in enumerate(classes.indices.tolist()):
            if label == NO_CLASS:
                continue
            path = os.path.normpath(self.path_of(row))
            first = label_of_path.setdefault(path, label)
            if first != label:
                raise NoLabels(
                    f"{self.path}: {printable(path)} has two labels, {classes.names[first]} and "
                    f"{classes.names[label]}. Keep one row per image."
                )


def _read(stream: IO[bytes], file: str, columns: Columns) -> tuple[list[str], Rows]:
    """Return a list's columns and its remaining rows."""
    kind = os.path.splitext(file)[1].lower()
    if kind == ".npy":
        return ["path"], _rows_of_array(file)
    lines = io.StringIO(_text(stream.read(), file), newline="")
    if kind == ".txt":
        return ["path", "label"], _rows_of_text(lines, file)
    if kind in (".csv", ".tsv"):
        first = next((line for line in lines if line.strip()), "")
        delimiter, header = _header(first, file, columns)
        return header, _rows_of_table(lines, file, delimiter, header)
    if kind == ".jsonl":
        keys = chain.from_iterable(row for _, row in _rows_of_json(lines, file))
        columns_of_any_row = list(dict.fromkeys(keys))
        lines.seek(0)
        return columns_of_any_row, _rows_of_json(lines, file)
    raise Refused(f"{file} is not an image list. Lists end in {', '.join(LISTS)}.")


def _text(content: bytes, file: str) -> str:
    """Decode a list: UTF-8, perhaps with the byte-order mark that editors on Windows write."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = 1 + content.count(b"\n", 0, error.start)
        byte = error.object[error.start]
        raise Refused(
            f"{file} is not UTF-8: line {line} has the byte {byte:#x}. Save the list as UTF-8."
        ) from None


def _rows_of_array(file: str) -> Rows:
    try:
        array = np.lib.format.open_memmap(file, mode="r")  # it never unpickles, as np.load can
    except ValueError as error:
        raise Refused(f"{file} is not an array of strings, or is damaged ({error})") from error
    if array.ndim != 1 or array.dtype.kind not in "US":
        raise Refused(f"{file} has {array.dtype} of shape {array.shape}: expected (N,) strings")
    try:
        paths = array if array.dtype.kind == "U" else np.strings.decode(array, "utf-8")
    except UnicodeDecodeError as error:
        raise Refused(f"{file} is not UTF-8: {error.object!r}. Save it again.") from None
    return ((row, {"path": str(path)}) for row, path in enumerate(paths))


def _rows_of_text(lines: TextIO, file: str) -> Rows:
    endings = "|".join(map(re.escape, [*IMAGE_EXTENSIONS, ARRAY_EXTENSION]))
    # The path ends at the last image extension before a space or tab, or else at a tab.
    with_label = re.compile(rf"(.*(?:{endings}))[ \t]+(\S.*)|([^\t]+)\t+(\S.*)", re.IGNORECASE)
    is_image = re.compile(rf".*(?:{endings})", re.IGNORECASE)
    comments = 0
    for number, line in enumerate(map(str.strip, lines), 1):
        match = with_label.fullmatch(line)
        if line.startswith("#"):
            comments += 1
        elif match and not is_image.fullmatch(line):
            yield number, {"path": match[1] or match[3], "label": match[2] or match[4]}
        elif line:
            yield number, {"path": line}
    if comments:
        warn_once(f"{file}: skipped {comments} comments (lines that begin with #)")


def _header(line: str, file: str, columns: Columns) -> tuple[str, list[str]]:
    """Return the delimiter and the columns of a table's first line.

    Raises:
        Refused: there is no image column.
    """
    delimiter = max(_DELIMITERS, key=line.count)
    header = [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter), [])]
    if columns.image not in header and BY_NAME.find("image", header, file) is None:
        raise Refused(
            f"{file} needs a header with comma, semicolon or tab in the first line: "
            f"{choose('image', map(printable, header))} Or write a .txt with lines PATH LABEL."
        )
    return delimiter, header


def _rows_of_table(lines: TextIO, file: str, delimiter: str, header: list[str]) -> Rows:
    try:
        for number, cells in enumerate(csv.reader(lines, delimiter=delimiter), 2):
            if any(cells[len(header) :]):
                raise Refused(
                    f"{file}: row {number} has {len(cells)} cells: expected {len(header)}, as in "
                    f"the header; quote cells that contain {delimiter!r}"
                )
            if any(cells):  # a row may lack the last columns
                yield number, dict(zip(header, map(str.strip, cells), strict=False))
    except csv.Error as error:
        raise Refused(f"{file} cannot be read as a table ({error})") from None


def _rows_of_json(lines: TextIO, file: str) -> Iterator[tuple[int, Mapping[str, object]]]:
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                yield number, dict(json.loads(line))
            except (ValueError, TypeError) as error:
                raise Refused(f"{file}: line {number} is not a JSON object ({error})") from None
