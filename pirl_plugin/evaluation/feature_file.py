"""Files of features: written while they are computed, resumed, and read without loading them.

``NAME.npz`` holds, for the N images that could be read: ``features`` float32 (N, D), ``files``
(N,), and if known ``labels`` (N,), ``classes`` (their names) and ``splits`` (N,); ``unreadable``
names the others. ``numpy.load`` reads it. Until it is whole, its parts are in
``NAME.npz.unfinished/``.
"""

from __future__ import annotations

import csv
import io
import json
import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import ConcatDataset

from pirl_plugin.evaluation.data import class_names_of, labels_of
from pirl_plugin.evaluation.features import Crops, compute_features
from pirl_plugin.failures import MissingPackage, Refused
from pirl_plugin.files import atomic_write, remove, write_json
from pirl_plugin.images.sources import ImageSource

FORMATS = (".npz", ".csv", ".parquet")
_CHUNK = 4096  # images at a time, when a file is written


class FeatureFile:
    """A file of one network's features, perhaps not yet whole.

    Args:
        path: ``.npz``, ``.csv`` or ``.parquet``.
        about: JSON that identifies images and network; a file of other features is refused.
        root: the user's path of the images; ``files`` are relative to it.
        splits: split to source of images, in their order in the file; one source has the split
            ``""``.

    Attributes:
        done: number of images, from the first, whose features are stored.

    Raises:
        ValueError: the ending is unknown, or the file holds other features.
    """

    def __init__(
        self,
        path: Path,
        about: Mapping[str, Any],
        root: Path,
        splits: Mapping[str, ImageSource],
    ) -> None:
        if path.suffix not in FORMATS:
            raise Refused(f"{path}: expected a name that ends in {', '.join(FORMATS)}")
        self.path = path
        self._about = json.loads(json.dumps(about))
        self._root = os.path.join(root, "")
        self._splits = dict(splits)
        self._parts = path.with_name(f"{path.name}.unfinished")
        self._progress: dict[str, Any] = {"about": self._about, "done": 0, "unreadable": []}
        self._find()

    @property
    def done(self) -> int:
        """Number of images, from the first, whose features are stored."""
        return int(self._progress["done"])

    @property
    def num_images(self) -> int:
        """Number of images."""
        return sum(map(len, self._splits.values()))

    @property
    def readable(self) -> Tensor:
        """Bool ``(num_images,)``: whether each image could be read."""
        readable = torch.ones(self.num_images, dtype=torch.bool)
        readable[self._progress["unreadable"]] = False
        return readable

    def append(self, features: NDArray[np.float32], readable: NDArray[np.bool_]) -> None:
        """Store the features ``(B, D)`` of the next B images; they survive the end of the process.

        Args:
            features: float32 ``(B, D)``.
            readable: ``(B,)``, whether each image could be read.
        """
        file = self._parts / "features.npy"
        if self.done == 0:
            self._parts.mkdir(parents=True, exist_ok=True)
            np.lib.format.open_memmap(file, "w+", np.float32, (self.num_images, features.shape[1]))
            with file.open("r+b") as opened:  # so a full disk is an error here, not a later crash
                os.posix_fallocate(opened.fileno(), 0, file.stat().st_size)
        stored = np.lib.format.open_memmap(file, "r+")  # a new map frees the memory of the old one
        stored[self.done : self.done + len(features)] = features
        stored.flush()
        rows = self.done + np.flatnonzero(~readable)
        self._progress["unreadable"] += rows.tolist()
        self._progress["done"] += len(features)
        write_json(self._parts / "progress.json", self._progress)

    def finish(self) -> None:
        """Write the file from its parts, and remove them; a whole file stays as it is."""
        if self.path.is_file():
            return
        if not self.readable.any():
            raise Refused(f"{self._root}: expected images that can be read, found none")
        write = {".npz": self._write_npz, ".csv": self._write_csv, ".parquet": self._write_parquet}
        write[self.path.suffix]()
        remove(self._parts)

    def unreadable_files(self) -> list[str]:
        """Return the names of the images that could not be read."""
        unreadable = set(self._progress["unreadable"])
        return [name for row, name in enumerate(self._names()) if row in unreadable]

    def _find(self) -> None:
        """Read the progress of an earlier call, from the whole file or from its parts."""
        file = self._parts / "progress.json"
        if self.path.exists():
            progress = _progress_of(self.path)
        elif file.is_file():
            progress = json.loads(file.read_text())
        else:
            return
        recorded = progress["about"]
        different = [key for key in self._about if recorded.get(key) != self._about[key]]
        if different:
            raise Refused(
                f"{self.path}: expected features of the same images and network, but this file has "
                f"another {' and '.join(different)}; name another file"
            )
        self._progress = progress

    def _names(self) -> Iterator[str]:
        for source in self._splits.values():
            for row in range(len(source)):
                yield source.path_of(row).removeprefix(self._root)

    def _columns(self) -> dict[str, Any]:
        """Return ``files``, ``labels`` and ``splits`` of the images that could be read."""
        readable = self.readable.numpy()
        columns: dict[str, Any] = {"files": np.array(list(self._names()))[readable]}
        labels = [labels_of(source) for source in self._splits.values()]
        if all(values is not None for values in labels):
            columns["labels"] = np.concatenate(labels)[readable]  # type: ignore[arg-type]
        if len(self._splits) > 1:
            names = list(self._splits)
            lengths = [len(source) for source in self._splits.values()]
            columns["splits"] = np.repeat(names, lengths)[readable]
        return columns

    def _class_names(self, columns: Mapping[str, Any]) -> list[str]:
        """Return the names of the classes 0, 1, …; none if the labels are only numbers."""
        if "labels" not in columns:
            return []
        names = class_names_of(next(iter(self._splits.values())))
        return names if columns["labels"].max() < len(names) else []

    def _table_columns(self) -> dict[str, Any]:
        """Return the columns of a table: ``file``, and if known ``label``, ``class``, ``split``."""
        columns = self._columns()
        table = {"file": columns["files"]}
        if "labels" in columns:
            table["label"] = columns["labels"]
        classes = self._class_names(columns)
        if classes:
            table["class"] = np.array([*classes, ""])[columns["labels"]]  # -1: no class
        if "splits" in columns:
            table["split"] = columns["splits"]
        return table

    def _chunks(self) -> Iterator[tuple[NDArray[np.intp], NDArray[np.float32]]]:
        """Yield readable rows, and their features ``(n, D)``, a part of the file at a time."""
        rows = np.flatnonzero(self.readable.numpy())
        for start in range(0, len(rows), _CHUNK):
            part = rows[start : start + _CHUNK]
            stored = np.load(self._parts / "features.npy", mmap_mode="r")
            yield np.arange(start, start + len(part)), np.asarray(stored[part])

    def _write_npz(self) -> None:
        columns = self._columns()
        classes = self._class_names(columns)
        if classes:
            columns["classes"] = np.array(classes)
        columns["unreadable"] = np.array(self.unreadable_files(), dtype=np.str_)
        columns["progress"] = np.array(json.dumps(self._progress))
        width = np.load(self._parts / "features.npy", mmap_mode="r").shape[1]
        header = {"descr": "<f4", "fortran_order": False}
        shape = (int(self.readable.sum()), width)
        with atomic_write(self.path) as file, zipfile.ZipFile(file, "w", allowZip64=True) as npz:
            # Not compressed, so that map_features can map it.
            with npz.open("features.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array_header_2_0(member, {**header, "shape": shape})
                for _, features in self._chunks():
                    member.write(features.astype("<f4", copy=False).tobytes())
            for name, values in columns.items():
                content = io.BytesIO()
                np.save(content, values, allow_pickle=False)
                npz.writestr(f"{name}.npy", content.getvalue(), zipfile.ZIP_DEFLATED)

    def _write_csv(self) -> None:
        columns = self._table_columns()
        self._keep_progress()
        with atomic_write(self.path) as file:
            text = io.TextIOWrapper(file, "utf-8", "surrogateescape", newline="")
            writer = csv.writer(text)
            for rows, features in self._chunks():
                if rows[0] == 0:
                    numbers = [f"feature{i}" for i in range(features.shape[1])]
                    writer.writerow([*columns, *numbers])
                for row, values in zip(rows, features.tolist(), strict=True):
                    writer.writerow([*(column[row] for column in columns.values()), *values])
            text.flush()
            text.detach()  # otherwise it would close the file

    def _write_parquet(self) -> None:
        pyarrow, parquet = _import_pyarrow()
        columns = self._table_columns()
        self._keep_progress()
        with atomic_write(self.path) as file:
            writer = None
            for rows, features in self._chunks():
                table = {name: column[rows].tolist() for name, column in columns.items()}
                table["features"] = pyarrow.FixedSizeListArray.from_arrays(
                    pyarrow.array(features.reshape(-1)), features.shape[1]
                )
                part = pyarrow.table(table)
                if writer is None:
                    writer = parquet.ParquetWriter(file, part.schema)
                writer.write_table(part)
            assert writer is not None  # an image could be read
            writer.close()

    def _keep_progress(self) -> None:
        """Write ``NAME.csv.json``: a table has no place for what it was computed from."""
        write_json(self.path.with_name(f"{self.path.name}.json"), self._progress)


def fill(
    files: Sequence[FeatureFile],
    trunks: Sequence[nn.Module],
    splits: Mapping[str, ImageSource],
    size: int,
    **how: Any,
) -> None:
    """Compute the features that files do not have yet, and finish the files.

    Args:
        files: a file for each trunk.
        trunks: trunks of the same width, in evaluation mode, on one device.
        splits: as in :class:`FeatureFile`.
        size: side of the centre crops, pixels.
        how: other arguments of :func:`~pirl_plugin.evaluation.features.compute_features`.
    """
    crops: ConcatDataset[tuple[Tensor, bool]] = ConcatDataset(
        [Crops(source, size) for source in splits.values()]
    )
    pairs = sorted(zip(files, trunks, strict=True), key=lambda pair: pair[0].done)
    # Files with equally many features are filled together, so that each image is read once.
    for num_done, group in groupby(pairs, key=lambda pair: pair[0].done):
        together = list(group)
        if num_done < len(crops):
            networks = [trunk for _, trunk in together]
            for features, readable in compute_features(networks, crops, first=num_done, **how):
                for (file, _), part in zip(together, features.float().cpu().numpy(), strict=True):
                    file.append(part, readable.numpy())
        for file, _ in together:
            file.finish()


def map_features(path: Path) -> NDArray[np.float32]:
    """Map ``features`` of a file that :class:`FeatureFile` wrote, without reading them.

    Args:
        path: an ``.npz`` file, which is a zip archive of arrays.

    Returns:
        float32 ``(N, D)`` that stays on the disk.
    """
    with zipfile.ZipFile(path) as npz, path.open("rb") as file:
        start = npz.getinfo("features.npy").header_offset
        file.seek(start)
        local_header = file.read(30)  # its fixed part; a name and an extra field follow
        name_length = int.from_bytes(local_header[26:28], "little")
        extra_length = int.from_bytes(local_header[28:30], "little")
        file.seek(start + len(local_header) + name_length + extra_length)
        np.lib.format.read_magic(file)
        shape, _, dtype = np.lib.format.read_array_header_2_0(file)
        return np.memmap(path, dtype, "r", file.tell(), shape)


def _progress_of(path: Path) -> dict[str, Any]:
    """Return what a whole file was computed from.

    Raises:
        ValueError: this package did not write the file, or it is damaged.
    """
    beside = path.with_name(f"{path.name}.json")
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as npz:
                progress = json.loads(str(npz["progress"]))
        else:
            progress = json.loads(beside.read_text())
        return {key: progress[key] for key in ("about", "done", "unreadable")}
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise Refused(
            f"{path}: expected features that this command wrote, but found another or a damaged "
            f"file; name another file, or remove this one"
        ) from error


def _import_pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError:
        raise MissingPackage(
            "a .parquet file needs pyarrow, which is not installed: pip install pyarrow"
        ) from None
    return pyarrow, parquet
