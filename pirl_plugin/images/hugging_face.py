"""Images of a Hugging Face data set on the disk, with its splits.

The package ``datasets`` opens the files one by one. Its own functions for folders would read a
``README.md`` or ``state.json``, which may name files elsewhere or addresses to fetch.
"""

from __future__ import annotations

import glob
import json
import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pirl_plugin.images.columns import BY_NAME, Columns
from pirl_plugin.images.decode import UnreadableImageError, read_file
from pirl_plugin.images.folders import SPLIT_NAMES, SPLITS
from pirl_plugin.images.map_source import MapSource
from pirl_plugin.system.failures import Refused
from pirl_plugin.system.text import printable

_STATE = "state.json"  # of save_to_disk, in the folder of a split
MARKS = frozenset({_STATE, "dataset_dict.json", "readme.md", "data"}) | SPLIT_NAMES
"""A folder of a data set has one of these, or parquet files; a folder of images may have one."""
_DEPTH = 2  # of folders, such as data/train/0000.parquet


class HuggingFaceSource(MapSource):
    """Images of a Hugging Face data set on disk: Arrow, as ``save_to_disk`` writes, or parquet.

    Args:
        path: the folder, as saved or as downloaded, or a parquet file.
        split: ``train`` or ``test``, if it has several splits; see ``folders.SPLITS``.
        columns: names of the columns of images and of labels.

    Raises:
        ImportError: the package ``datasets`` is not installed.
        ValueError: there is no such split, or no column of images.
    """

    def __init__(
        self, path: str | os.PathLike[str], split: str = "train", columns: Columns = BY_NAME
    ) -> None:
        place = os.fspath(path)
        files_of_split = find_data_files(place) if os.path.isdir(place) else {"": [place]}
        self.num_splits = len(files_of_split)
        name = _choose_split(files_of_split, "train" if split == "train" else "val", place)
        if self.num_splits > 1:
            logging.root.info(f"{place}: the split {name} of {', '.join(files_of_split)}")
        self._files = files_of_split[name]
        self._split = name
        super().__init__(open_data_files(self._files), columns=columns, path=place)

    def path_of(self, row: int) -> str:
        """Return ``PATH/SPLIT[ROW]``, for messages."""
        place = os.path.join(self.path, self._split) if self._split else self.path
        return f"{place}[{row}]"

    def _read_file(self, path: str) -> bytearray:
        """Read a file that a row names, unless it lies outside the data set's folder."""
        folder = os.path.dirname(os.path.realpath(self._files[0]))
        file = os.path.realpath(os.path.join(folder, path))
        if os.path.commonpath([folder, file]) != folder:
            raise UnreadableImageError(f"its row names a file outside {folder}: {printable(path)}")
        return read_file(file)

    def files(self) -> list[str]:
        """Return the Arrow or parquet files."""
        return self._files


def _choose_split(splits: Mapping[str, object], split: str, folder: str) -> str:
    """Return the name of a split; the only one is taken, but a training split for no test."""
    is_a_split = Path(folder).name.lower() in SPLIT_NAMES
    if len(splits) == 1 and (split == "train" or "" in splits or is_a_split):
        return next(iter(splits))
    for usual_name in SPLITS[split]:
        for name in splits:
            if name.lower() == usual_name:
                return name
    raise Refused(
        f"{folder} has the splits {', '.join(splits) or 'none'}: expected one of "
        f"{', '.join(SPLITS[split])}"
    )


def find_data_files(folder: str | os.PathLike[str]) -> dict[str, list[str]]:
    """Find the files of a data set: Arrow files of ``save_to_disk``, or parquet files.

    A split of parquet files is a folder (``train/0000.parquet``), or the beginning of their names
    (``data/train-00000-of-00002.parquet``).

    Returns:
        Split to paths of files, sorted by name; the split is ``""`` if the names have none. Empty
        if there are no such files.

    Raises:
        Refused: the files are of several data sets, or a ``state.json`` names files elsewhere.
    """
    top = Path(folder)
    # Of save_to_disk: one split, or a folder for each.
    if (top / _STATE).is_file():
        return {"": _arrow_files(top)}
    saved = sorted(file.parent for file in top.glob(f"*/{_STATE}"))
    if saved:
        return {path.name: _arrow_files(path) for path in saved}
    # Parquet files: two data sets in a folder would be mixed.
    is_download = (top / "README.md").is_file()
    files = []
    for path, folders_here, names in os.walk(top, followlinks=True):
        files += [Path(path, name) for name in sorted(names) if name.endswith(".parquet")]
        depth = len(Path(path).relative_to(top).parts)
        entered = []  # os.walk goes on into these: ``data``, splits, or all of a download
        for name in sorted(folders_here):
            is_usual = name.lower() in SPLIT_NAMES | {"data"}
            if depth < _DEPTH and not name.startswith(".") and (is_download or is_usual):
                entered.append(name)
        folders_here[:] = entered
    splits: dict[str, list[str]] = {}
    folders: dict[Path, str] = {}  # of each data set, with one of its files
    for file in files:
        split = _split_of(file.relative_to(top))
        parent = file.parent.parent if file.parent.name == split else file.parent
        folders.setdefault(parent, file.name)
        splits.setdefault(split, []).append(str(file))
    if len(folders) > 1:
        listed = ", ".join(str(path) for path in folders)
        raise Refused(f"{folder} holds the data sets {listed}: expected one; give its folder")
    return splits


def _arrow_files(folder: Path) -> list[str]:
    """Return the files of a folder that ``save_to_disk`` wrote, in the order of the rows."""
    try:
        entries = json.loads((folder / _STATE).read_bytes())["_data_files"]
        names = [entry["filename"] for entry in entries]
    except (ValueError, KeyError, TypeError) as error:
        raise Refused(f"{folder / _STATE} is damaged ({error}): save the data set again") from None
    for name in names:
        if not isinstance(name, str) or os.path.basename(name) != name:
            raise Refused(f"{folder / _STATE} names {name}: expected files in its own folder")
    return [str(folder / name) for name in names]


def _split_of(file: Path) -> str:
    """Return the split that a parquet file's folder or name begins with, as it is written."""
    for word in (file.parent.name, re.split("[-._]", file.name)[0]):
        if word.lower() in SPLIT_NAMES:
            return word
    return ""


def open_data_files(files: list[str]) -> Any:
    """Open the files of a split, without a request to the hub.

    Raises:
        ImportError: the package ``datasets`` is not installed.
    """
    import datasets

    parts = []
    for file in files:
        try:
            if file.endswith(".parquet"):  # the package takes its name for a pattern
                parts.append(datasets.Dataset.from_parquet(glob.escape(file)))
            else:
                parts.append(datasets.Dataset.from_file(file))
        except Exception as error:  # of pyarrow, or what the package makes of it
            raise Refused(
                f"{file} cannot be read ({error.__cause__ or error}). If it is incomplete, "
                f"download or save it again."
            ) from error
    return datasets.concatenate_datasets(parts)
