"""A file of features: stored while they are computed, so that a stopped command resumes.

``NAME.npz`` holds, for the N images that could be read: ``features`` float32 (N, D), ``files``
(N,), and if known ``labels`` (N,), ``classes`` (their names) and ``splits`` (N,); ``unreadable``
names the others. ``numpy.load`` reads it. Tables, ``NAME.csv`` and ``NAME.parquet``, have a row for
each of these images. Until the file is whole, its parts are in ``NAME.npz.unfinished/``.
"""

from __future__ import annotations

import csv
import io
import json
import math
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

from pirl_plugin.evaluation.features import Crops, compute_features
from pirl_plugin.evaluation.labelled_images import labels_of
from pirl_plugin.images.sources import ImageSource
from pirl_plugin.system.failures import MissingPackage, Refused
from pirl_plugin.system.files import atomic_write, remove, write_json

FORMATS = (".npz", ".csv", ".parquet")
_BLOCK = 4096  # images at a time, when a file is read or written


class FeatureFile:
    """A file of one network's features, perhaps not yet whole.

    Args:
        path: ``.npz``, ``.csv`` or ``.parquet``.
        about: JSON that identifies images and network; a file of other features is refused.
        root: the user's path of the images; ``files`` are relative to it.
        splits: split to source of images, in their order in the file; one source has the split
            ``""``.

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
        self._root = os.path.join(root, "")
        self._splits = dict(splits)
        self._parts = path.with_name(f"{path.name}.unfinished")
        self._stored = self._parts / "features.f32"  # float32, of the images that could be read
        about = json.loads(json.dumps(about))  # as it will be read
        self._progress = self._recorded() or {"about": about, "done": 0, "unreadable": []}
        recorded = self._progress["about"]
        different = [key for key in about if recorded.get(key) != about[key]]
        if different:
            raise Refused(
                f"{path}: expected features of the same images and network, but this file has "
                f"another {' and '.join(different)}; name another file"
            )

    @property
    def done(self) -> int:
        """Number of images, from the first, that have been read."""
        return int(self._progress["done"])

    @property
    def readable(self) -> Tensor:
        """Bool ``(images,)``: whether each image could be read."""
        readable = torch.ones(sum(map(len, self._splits.values())), dtype=torch.bool)
        readable[self._progress["unreadable"]] = False
        return readable

    def append(self, features: NDArray[np.float32], readable: NDArray[np.bool_]) -> None:
        """Store the features of the next B images; they survive the end of the process.

        Args:
            features: float32 ``(B, D)``.
            readable: ``(B,)``, whether each image could be read.
        """
        self._parts.mkdir(parents=True, exist_ok=True)
        num_stored = self.done - len(self._progress["unreadable"])
        with self._stored.open("r+b" if self.done else "wb") as file:
            # A stopped command may have stored a batch that its progress does not count.
            file.truncate(num_stored * features[:1].nbytes)
            file.seek(0, os.SEEK_END)
            file.write(features[readable].tobytes())
            file.flush()
            os.fsync(file.fileno())
        self._progress["unreadable"] += (self.done + np.flatnonzero(~readable)).tolist()
        self._progress["done"] += len(features)
        write_json(self._parts / "progress.json", self._progress)

    def finish(self) -> None:
        """Write the file from its parts, and remove them; a whole file stays as it is."""
        if self.path.is_file():
            return
        num_readable = int(self.readable.sum())
        if num_readable == 0:
            raise Refused(f"{self._root}: expected images that can be read, found none")
        stored = np.memmap(self._stored, np.float32, "r")  # on the disk: it may be large
        features = stored.reshape(num_readable, -1)
        write = {".npz": self._write_npz, ".csv": self._write_csv, ".parquet": self._write_parquet}
        write[self.path.suffix](features)
        remove(self._parts)

    def unreadable_files(self) -> list[str]:
        """Return the names of the images that could not be read."""
        unreadable = set(self._progress["unreadable"])
        return [name for row, name in enumerate(self._names()) if row in unreadable]

    def _recorded(self) -> dict[str, Any] | None:
        """Return the progress of an earlier command, from the whole file or from its parts.

        Raises:
            ValueError: this package did not write the file, or it is damaged.
        """
        if not self.path.exists():
            file = self._parts / "progress.json"
            return json.loads(file.read_text()) if file.is_file() else None
        try:
            if self.path.suffix == ".npz":
                with np.load(self.path, allow_pickle=False) as npz:
                    progress = json.loads(str(npz["progress"]))
            else:
                progress = json.loads(self._beside.read_text())
            return {key: progress[key] for key in ("about", "done", "unreadable")}
        except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
            raise Refused(
                f"{self.path}: expected features that this command wrote, but found another or a "
                f"damaged file; name another file, or remove this one"
            ) from error

    @property
    def _beside(self) -> Path:
        """``NAME.csv.json``: a table has no place for what it was computed from."""
        return self.path.with_name(f"{self.path.name}.json")

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
        classes = next(iter(self._splits.values())).classes
        return classes if classes and "labels" in columns else []

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

    def _write_npz(self, features: NDArray[np.float32]) -> None:
        columns = self._columns()
        classes = self._class_names(columns)
        if classes:
            columns["classes"] = np.array(classes)
        columns["unreadable"] = np.array(self.unreadable_files(), dtype=np.str_)
        columns["progress"] = np.array(json.dumps(self._progress))
        with atomic_write(self.path) as file:
            np.savez(file, features=features, **columns)

    def _write_csv(self, features: NDArray[np.float32]) -> None:
        columns = self._table_columns()
        write_json(self._beside, self._progress)
        with atomic_write(self.path) as file:
            text = io.TextIOWrapper(file, "utf-8", "surrogateescape", newline="")
            writer = csv.writer(text)
            writer.writerow([*columns, *(f"feature{i}" for i in range(features.shape[1]))])
            for row, values in enumerate(features):
                writer.writerow([*(column[row] for column in columns.values()), *values.tolist()])
            text.flush()
            text.detach()  # otherwise it would close the file

    def _write_parquet(self, features: NDArray[np.float32]) -> None:
        try:
            import pyarrow
            from pyarrow import parquet
        except ModuleNotFoundError:
            raise MissingPackage(
                "a .parquet file needs pyarrow, which is not installed: pip install pyarrow"
            ) from None
        table = {name: column.tolist() for name, column in self._table_columns().items()}
        values = pyarrow.array(features.reshape(-1))
        table["features"] = pyarrow.FixedSizeListArray.from_arrays(values, features.shape[1])
        write_json(self._beside, self._progress)
        with atomic_write(self.path) as file:
            parquet.write_table(pyarrow.table(table), file, row_group_size=_BLOCK)


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


def read_half_features(path: Path) -> Tensor:
    """Read ``features`` of an ``.npz`` file that :class:`FeatureFile` wrote, a part at a time.

    Returns:
        float16 ``(N, D)``.
    """
    with zipfile.ZipFile(path) as npz, npz.open("features.npy") as file:
        np.lib.format.read_magic(file)
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        features = np.empty(shape, np.float16)
        num_parts = math.ceil(len(features) / _BLOCK)
        for part in np.array_split(features, num_parts):  # views: writing fills `features`
            content = file.read(part.size * dtype.itemsize)
            part[:] = np.frombuffer(content, dtype).reshape(part.shape)
    return torch.from_numpy(features)
