"""Images in a list: an array of strings, a table, or a text file with one path per line."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, TextIO

import numpy as np

from pirl_plugin.images.classes import (
    MISSING_VALUES,
    NO_CLASS,
    Classes,
    NoLabels,
    class_name,
    natural_order,
)
from pirl_plugin.images.columns import BY_NAME, Columns, Entry, column_hint
from pirl_plugin.images.decode import CONVERTERS, read_file
from pirl_plugin.images.folders import ARRAY_EXTENSION, IMAGE_EXTENSIONS
from pirl_plugin.images.names import DISK_FILELIST, DISK_FOLDER, LISTS
from pirl_plugin.images.source import ImageSource
from pirl_plugin.system.console import warn_once
from pirl_plugin.system.failures import Refused

_DELIMITERS = (",", ";", "\t")
_CHANNELS = "channels"
"""Key in a ``.jsonl`` for the files of an image's channels: name → path."""

Rows = Iterable[Mapping[Any, object]]
"""The rows in a list: values by column."""


class FileListSource(ImageSource):
    """The images in a list; relative paths are relative to the list's folder.

    In a ``.txt``, a line is a path, or a path, a space or tab, and a label. Lines that begin with
    ``#`` are comments. Tables, ``.csv`` and ``.tsv``, have a header and are separated by commas,
    semicolons or tabs. In a ``.jsonl``, each line is an object, as in ``metadata.jsonl``; for an
    image with one file per channel, ``channels`` maps their names to paths. A ``.npy`` is an array
    (N,) of strings.

    Args:
        path: path to the list.
        remove_prefix: a prefix of the paths, which ``new_prefix`` replaces.
        new_prefix: new prefix for all paths.
        columns: names of a table's path, label and group columns.

    Raises:
        FileNotFoundError: the list does not exist.
        ValueError: there is no image, a line without a path, or text that is not UTF-8.
    """

    kind = "list"
    registered_name = DISK_FILELIST
    label_hint = "Add a label for each image."
    missing_labels = MISSING_VALUES

    def __init__(
        self,
        path: str | os.PathLike[str],
        remove_prefix: str = "",
        new_prefix: str = "",
        columns: Columns = BY_NAME,
    ) -> None:
        file = os.fspath(path)
        if os.path.isdir(file):
            raise Refused(
                f"{file} is a folder, not a list of images. For the images in a folder, choose the "
                f"data source {DISK_FOLDER}."
            )
        header, rows = _read(file)
        path_column = columns.find("image", header, file)
        if path_column is None:
            raise Refused(f"{file}: {column_hint('image', header)}")
        label_column = columns.find("label", header, file)
        group_column = columns.find("group", header, file)
        entries = []
        for number, row in enumerate(rows, 1):
            image = str(row.get(path_column) or "").strip()
            if not image:
                raise Refused(f"{file}: entry {number} has no {path_column!r}. Remove it.")
            entry = Entry(
                new_prefix + image.removeprefix(remove_prefix),
                row.get(label_column),
                class_name(row.get(group_column), MISSING_VALUES),
            )
            channels = row.get(_CHANNELS)
            if isinstance(channels, dict):
                entry = entry._replace(channels=channels)
            entries.append(entry)
        used = {path_column, label_column, group_column, _CHANNELS}
        if not used.issuperset(header):  # otherwise there was no choice
            source_of_labels = f", labels from {label_column!r}" if label_column else ""
            warn_once(f"{file}: paths from the column {path_column!r}{source_of_labels}")
        if label_column is None:
            self.label_hint = column_hint("label", header)
        # JSON has its own null, so every text is a name.
        is_json = file.lower().endswith(".jsonl")
        labels = (entry.label for entry in entries)
        texts = {label for label in labels if isinstance(label, str) and label.strip()}
        order = natural_order(texts) if is_json else ()
        super().__init__(file, entries, os.path.dirname(file), order)

    def _find_classes(self) -> Classes:
        """Return the classes in the label column.

        Raises:
            NoLabels: there are no labels, or an image has two.
        """
        classes = super()._find_classes()
        label_of_path: dict[str, int] = {}
        for path, label in zip(self.paths(), classes.indices.tolist(), strict=True):
            if label == NO_CLASS:
                continue
            first = label_of_path.setdefault(os.path.normpath(path), label)
            if first != label:
                raise NoLabels(
                    f"{self.path}: {path} has two labels, {classes.names[first]} and "
                    f"{classes.names[label]}. Keep one row per image."
                )
        return classes


def _read(file: str) -> tuple[list[str], Rows]:
    """Return a list's columns and its remaining rows."""
    kind = os.path.splitext(file)[1].lower()
    if kind == ".npy":
        return ["path"], _rows_of_array(file)
    if kind not in LISTS:
        raise Refused(f"{file} is not an image list. Lists end in {', '.join(LISTS)}.")
    try:
        text = read_file(file).decode("utf-8-sig")  # some editors write a byte-order mark
    except UnicodeDecodeError as error:
        raise Refused(f"{file} is not UTF-8: {error}. Save the list as UTF-8.") from None
    lines = io.StringIO(text, newline="")
    if kind == ".txt":
        return ["path", "label"], _rows_of_text(lines)
    if kind == ".jsonl":
        columns = dict.fromkeys(chain.from_iterable(_rows_of_json(lines, file)))
        lines.seek(0)
        return list(columns), _rows_of_json(lines, file)
    return _table(lines, file)


def _rows_of_array(file: str) -> Rows:
    try:
        paths = np.load(file, mmap_mode="r", allow_pickle=False).astype(str, copy=False)
    except ValueError as error:
        raise Refused(f"{file}: expected an array (N,) of strings ({error}).") from error
    return ({"path": str(path)} for path in paths)


def _rows_of_text(lines: TextIO) -> Rows:
    endings = "|".join(map(re.escape, [*IMAGE_EXTENSIONS, ARRAY_EXTENSION, *CONVERTERS]))
    # The path ends at the last image extension before a space or tab, or else at a tab. A line that
    # ends in an image extension is a path.
    with_label = re.compile(
        rf"(?!.*(?:{endings})$)(?:(.*(?:{endings}))[ \t]+(\S.*)|([^\t]+)\t+(\S.*))", re.IGNORECASE
    )
    for line in map(str.strip, lines):
        if not line or line.startswith("#"):
            continue
        match = with_label.fullmatch(line)
        path, label = filter(None, match.groups()) if match else (line, None)
        yield {"path": path, "label": label}


def _table(lines: TextIO, file: str) -> tuple[list[str], Rows]:
    """Return the columns of a table, and its rows."""
    header = next((line for line in lines if line.strip()), "")
    delimiter = max(_DELIMITERS, key=header.count)
    columns = [name.strip() for name in next(csv.reader([header], delimiter=delimiter), [])]
    repeated = [name for name, count in Counter(columns).items() if name and count > 1]
    if repeated:
        raise Refused(f"{file} has the column {repeated[0]!r} twice. Rename or remove one.")
    return columns, _rows_of_table(csv.DictReader(lines, columns, delimiter=delimiter), file)


def _rows_of_table(reader: csv.DictReader[str], file: str) -> Rows:
    for row in reader:
        if any(row.pop(None, ())):
            raise Refused(
                f"{file}: row {reader.line_num + 1} has more cells than the header. Put quotes "
                f"around a cell with {reader.reader.dialect.delimiter!r} in it."
            )
        if any(row.values()):
            yield row


def _rows_of_json(lines: TextIO, file: str) -> Iterator[Mapping[str, object]]:
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                yield dict(json.loads(line))
            except (ValueError, TypeError) as error:
                raise Refused(f"{file}: line {number} is not a JSON object ({error})") from None
