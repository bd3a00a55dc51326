"""Store features on disk while they are computed, and write the files for ``embed``.

``NAME.npz`` holds, for the N readable images: ``features`` float32 (N, D), ``files`` (N,),
``digests`` int64 (N,), equal for images with equal pixels, and if known, ``labels`` (N,) and
``classes`` (class names). If the checkpoint has a classifier, it also holds ``predicted`` (N,),
class names, and ``probability`` float32 (N,). ``unreadable`` names the other images.
``numpy.load`` reads the file. Tables, ``NAME.csv`` and ``NAME.parquet``, have one row per readable
image.
"""

from __future__ import annotations

import csv
import io
import json
import logging
import os
import struct
import tempfile
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pirl_plugin.checkpoints.classifier import Classifier
from pirl_plugin.evaluation.knn import find_neighbors
from pirl_plugin.images.classes import NoLabels
from pirl_plugin.images.source import ImageSource
from pirl_plugin.system.comparison import differences
from pirl_plugin.system.failures import Refused
from pirl_plugin.system.files import (
    atomic_write,
    check_space,
    digest_of,
    naming_failures,
    remove,
    write_json,
)
from pirl_plugin.system.text import printable

_CONTENT = "content of images"
_PROGRESS = "progress.json"
_BLOCK = 4096  # images at a time when reading or writing a file
_MOST_HALF = torch.finfo(torch.float16).max


class Batch(NamedTuple):
    """Features for B images.

    Attributes:
        features: floating ``(B, D)`` for each layer of each network.
        readable: bool ``(B,)``, whether each image is readable.
        digests: int64 ``(B,)``, equal for images whose crops have equal pixels.
    """

    features: list[Tensor]
    readable: Tensor
    digests: Tensor


class FeatureStore:
    """Features on disk, which may exceed the memory.

    Args:
        num_images: number of images in all batches.
        folder: folder for unnamed files, so that a killed command leaves nothing behind; None: the
            temporary folder. They hold float16, see :func:`to_half`.
        parts: folder for named files instead, which let a stopped command resume. They hold
            float32.

    Attributes:
        readable: bool ``(images,)``, whether each image is readable.
        row_bytes: size of one row in each array.
    """

    def __init__(
        self, num_images: int, folder: Path | None = None, parts: Path | None = None
    ) -> None:
        self.num_images = num_images
        self.readable = torch.zeros(0, dtype=torch.bool)
        self.row_bytes: list[int] = []
        self._parts = parts
        self._folder = Path(tempfile.gettempdir()) if folder is None else folder
        self._remedy = "Choose an output folder on another disk."
        if folder is None:
            self._remedy = "Set the environment variable TMPDIR to a folder on another disk."
        self._files: list[Any] = []  # one per feature array, and the last for digests

    def append(self, batch: Batch) -> None:
        """Store features for the next images."""
        encode = to_half if self._parts is None else torch.Tensor.float
        arrays = [encode(part[batch.readable]) for part in batch.features]
        arrays.append(batch.digests[batch.readable, None])
        if not self._files:
            row_bytes = [array.shape[1] * array.element_size() for array in arrays]
            check_space(self._folder, self.num_images * sum(row_bytes), self._remedy)
            self.open_files(row_bytes)
        with naming_failures(self._folder):
            for file, array in zip(self._files, arrays, strict=True):
                file.write(array.cpu().numpy().tobytes())
                if self._parts is not None:
                    os.fsync(file.fileno())
        self.readable = torch.cat([self.readable, batch.readable])

    def open_files(self, row_bytes: list[int]) -> None:
        """Open a file for each array, with one row per readable image."""
        self.row_bytes = row_bytes
        num_rows = int(self.readable.sum())
        with naming_failures(self._folder):
            for number, size in enumerate(row_bytes):
                if self._parts is None:
                    self._files.append(tempfile.TemporaryFile(dir=self._folder, buffering=0))
                    continue
                self._parts.mkdir(exist_ok=True)
                file = (self._parts / f"{number}.bin").open("a+b", buffering=0)
                file.truncate(num_rows * size)  # drop a batch that was not counted
                self._files.append(file)

    def require_readable(self) -> None:
        """Raise ``Refused``, and remove named files, if no image is readable."""
        if not self.readable.any():
            if self._parts is not None:
                remove(self._parts)
            raise Refused(
                f"None of the {self.num_images:,} images could be read; see the warnings above."
            )

    @property
    def features(self) -> list[Tensor]:
        """Each feature array, ``(N, D)`` for the N readable images, mapped from its file."""
        dtype = np.float16 if self._parts is None else np.float32
        return [self._map(file, dtype) for file in self._files[:-1]]

    @property
    def digests(self) -> Tensor:
        """Digest of each readable image, int64 ``(N,)``."""
        return self._map(self._files[-1], np.int64)[:, 0]

    def _map(self, file: BinaryIO, dtype: type) -> Tensor:
        values = np.memmap(file, dtype, "r+")
        return torch.from_numpy(values.reshape(int(self.readable.sum()), -1))


class FeatureFile:
    """A feature file, perhaps still incomplete.

    Args:
        path: ``.npz``, ``.csv`` or ``.parquet``.
        about: JSON that identifies images and networks, see :func:`describe_images`.
        source: the images.
        root: folder that names in the file are relative to; None: absolute names.

    Attributes:
        store: features for the images that have been read.
        is_complete: whether the file has features for all images.

    Raises:
        Refused: the file holds different features.
    """

    def __init__(
        self, path: Path, about: Mapping[str, Any], source: ImageSource, root: Path | None = None
    ) -> None:
        self.path = path
        self.is_complete = False
        self._source = source
        self._prefix = "" if root is None else os.path.join(root, "")
        self._about: dict[str, Any] = json.loads(json.dumps(about))  # as it will be read back
        self._parts = path.with_name(f"{path.name}.unfinished")
        self.store = FeatureStore(len(source), path.parent, self._parts)
        progress = self._read_progress()
        if progress is None or not self._is_current(progress):
            return
        self.store.readable = torch.ones(progress["done"], dtype=torch.bool)
        self.store.readable[progress["unreadable"]] = False
        self.is_complete = path.exists()
        if not self.is_complete:
            self.store.open_files(progress["row_bytes"])

    def append(self, batch: Batch) -> None:
        """Store features for the next images; the same command resumes after them."""
        self.store.append(batch)
        write_json(self._parts / _PROGRESS, self._progress())

    def write(
        self,
        columns: Mapping[str, NDArray[Any]],
        features: Mapping[str, NDArray[np.float32]],
        order: NDArray[np.int64] | None = None,
    ) -> None:
        """Write the file, and remove its parts.

        Args:
            columns: additional columns for the N readable images.
            features: name → ``(N, D)``.
            order: int64 ``(N,)``, row order in a table; None: as read.
        """
        readable = self.store.readable.numpy()
        table = {"file": self.readable_names(), **self._labels(readable), **columns}
        if self.path.suffix == ".npz":
            renamed = {"file": "files", "label": "labels"}
            arrays = {renamed.get(name, name): values for name, values in table.items()}
            if arrays.pop("class", None) is not None:
                arrays["classes"] = np.array(self._source.classes)
            arrays["digests"] = self.store.digests.numpy()
            arrays["unreadable"] = np.array(self.unreadable_names(), dtype=np.str_)
            arrays["progress"] = np.array(json.dumps(self._progress()))
            with atomic_write(self.path) as file:
                np.savez(file, **features, **arrays)  # type: ignore[arg-type]
        else:
            for name, values in table.items():
                if values.dtype.kind == "U":  # file and folder names need not be UTF-8
                    table[name] = np.array(list(map(printable, values.tolist())), object)
            if order is not None:
                table = {name: values[order] for name, values in table.items()}
                features = {name: values[order] for name, values in features.items()}
            write = _write_csv if self.path.suffix == ".csv" else _write_parquet
            write(self.path, table, features)
        remove(self._parts)
        self.is_complete = True

    def readable_names(self) -> NDArray[np.str_]:
        """Return the N readable images' names."""
        rows = self.store.readable.nonzero()[:, 0].tolist()
        return np.array([self._name_of(row) for row in rows])

    def unreadable_names(self) -> list[str]:
        """Return the unreadable images' names."""
        return [self._name_of(row) for row in self._unreadable_rows()]

    def _unreadable_rows(self) -> list[int]:
        rows: list[int] = (~self.store.readable).nonzero()[:, 0].tolist()
        return rows

    def _name_of(self, row: int) -> str:
        return self._source.path_of(row).removeprefix(self._prefix)

    def _labels(self, readable: NDArray[np.bool_]) -> dict[str, NDArray[Any]]:
        try:
            labels = self._source.labels()[readable]
        except NoLabels:
            return {}
        if not self._source.classes:
            return {}
        names = np.array([*self._source.classes, ""])  # the last entry is for NO_CLASS, −1
        return {"label": labels, "class": names[labels]}

    def _progress(self) -> dict[str, Any]:
        return {
            "about": self._about,
            "done": len(self.store.readable),
            "unreadable": self._unreadable_rows(),
            "row_bytes": self.store.row_bytes,
        }

    def _read_progress(self) -> dict[str, Any] | None:
        """Return the progress that an earlier command recorded; None without one."""
        file = self.path if self.path.exists() else self._parts / _PROGRESS
        if not file.exists():
            return None
        try:
            if file == self.path:
                with np.load(file, allow_pickle=False) as npz:
                    progress = json.loads(str(npz["progress"]))
            else:
                progress = json.loads(file.read_text())
            return {name: progress[name] for name in self._progress()}
        except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
            raise Refused(
                f"{file} is damaged, or another program wrote it. Choose another file name, or "
                f"delete it."
            ) from error

    def _is_current(self, progress: Mapping[str, Any]) -> bool:
        """Return whether stored features match the current images.

        They do not if images have changed, if an unreadable image has become readable, or if a part
        is truncated.

        Raises:
            Refused: the features are for other images or another network.
        """
        recorded = progress["about"]
        differs = differences(self._about, recorded, free=[_CONTENT])
        if differs:
            keys = " and ".join(dict.fromkeys(key.partition(".")[0] for key in differs))
            path = self.path if self.path.exists() else self._parts
            raise Refused(
                f"{path} was computed for a different {keys}. Choose another file name, or delete "
                f"it."
            )
        is_same = recorded.get(_CONTENT) == self._about[_CONTENT]
        is_readable = any(self._source[row].is_readable for row in progress["unreadable"])
        num_rows = progress["done"] - len(progress["unreadable"])
        parts = enumerate([] if self.path.exists() else progress["row_bytes"])
        is_whole = all(
            (self._parts / f"{number}.bin").stat().st_size >= num_rows * size
            for number, size in parts
        )
        if is_same and not is_readable and is_whole:
            return True
        logging.root.warning(f"recomputing {self.path}, because its images have changed")
        self.path.unlink(missing_ok=True)
        return False


def describe_images(source: ImageSource) -> dict[str, Any]:
    """Return JSON that identifies a source's images and labels."""
    names, content = source.fingerprint()
    labels = ""
    with suppress(NoLabels):
        labels = digest_of([*source.classes, *map(str, source.labels())])
    return {"list of images": names, _CONTENT: [content, labels]}


def predict(classifier: Classifier, features: Tensor) -> dict[str, NDArray[Any]]:
    """Return the columns ``predicted`` (class names) and ``probability`` (float32)."""
    classes = np.array(classifier.classes)
    predicted = []
    probabilities = []
    for part in features.split(_BLOCK):
        index, probability = classifier.predict(part)
        predicted.append(classes[index.numpy()])
        probabilities.append(probability.numpy())
    return {
        "predicted": np.concatenate(predicted),
        "probability": np.concatenate(probabilities),
    }


class Gallery:
    """Features in a file from ``embed``, to search for nearest images.

    Args:
        path: ``.npz``.
        network: JSON that identifies the network and layer, which must match the file's.

    Raises:
        Refused: the file is missing, was written by another program, or is for another network.
    """

    def __init__(self, path: Path, network: Mapping[str, Any]) -> None:
        self.features = map_array(path, "features")
        self.digests = map_array(path, "digests")
        with np.load(path, allow_pickle=False) as npz:
            self.names = npz["files"]
            about = json.loads(str(npz["progress"]))["about"]
        recorded = {key: about.get(key) for key in network}
        differs = differences(json.loads(json.dumps(network)), recorded)
        if differs:
            keys = " and ".join(dict.fromkeys(key.partition(".")[0] for key in differs))
            raise Refused(f"{path} was computed for a different {keys}. Recompute it.")

    def find_nearest(
        self, names: NDArray[np.str_], features: Tensor, digests: Tensor
    ) -> dict[str, NDArray[Any]]:
        """Return the columns ``nearest`` (a name) and ``similarity`` (the cosine).

        Skips the file's entry for the same image, with the same name and pixels.

        Args:
            names: names of the N images.
            features: ``(N, D)``.
            digests: int64 ``(N,)``.
        """
        rows, cosines = find_neighbors(features, self.features, 2)
        first = rows[:, 0]
        is_itself = (self.names[first] == names) & (self.digests[first] == digests).numpy()
        choice = is_itself.astype(int) % rows.shape[1]  # a file with one image has no other
        images = np.arange(len(names))
        return {
            "nearest": self.names[rows[images, choice]],
            "similarity": cosines[images, choice].numpy(),
        }


def map_array(path: Path, name: str) -> Tensor:
    """Map an array in an ``.npz`` file, which :func:`numpy.savez` does not compress.

    Raises:
        Refused: the file lacks this array.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            start = archive.getinfo(f"{name}.npy").header_offset
        with path.open("rb") as file:
            file.seek(start + 26)  # the sizes of the last two fields in a zip entry's header
            file.seek(sum(struct.unpack("<HH", file.read(4))), os.SEEK_CUR)
            np.lib.format.read_magic(file)
            shape, _, dtype = np.lib.format.read_array_header_1_0(file)
            # Copy on write, because torch warns about read-only arrays.
            return torch.from_numpy(np.memmap(path, dtype, "c", file.tell(), shape))
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise Refused(f"{path} has no array {name}. Pass a file from pirl-plugin embed.") from error


def _write_csv(
    path: Path, table: Mapping[str, NDArray[Any]], features: Mapping[str, NDArray[np.float32]]
) -> None:
    matrix = next(iter(features.values()), np.empty((len(table["file"]), 0), np.float32))
    with atomic_write(path) as file:
        text = io.TextIOWrapper(file, "utf-8", newline="")
        writer = csv.writer(text)
        writer.writerow([*table, *(f"feature{number}" for number in range(matrix.shape[1]))])
        for row, values in enumerate(matrix):
            writer.writerow([*(column[row] for column in table.values()), *values.tolist()])
        text.flush()
        text.detach()  # otherwise this would close the file


def _write_parquet(
    path: Path, table: Mapping[str, NDArray[Any]], features: Mapping[str, NDArray[np.float32]]
) -> None:
    import pyarrow
    from pyarrow import parquet

    columns: dict[str, Any] = dict(table)
    for name, matrix in features.items():
        values = pyarrow.array(matrix.reshape(-1))
        columns[name] = pyarrow.FixedSizeListArray.from_arrays(values, matrix.shape[1])
    with atomic_write(path) as file:
        parquet.write_table(pyarrow.table(columns), file, row_group_size=_BLOCK)


def to_half(features: Tensor) -> Tensor:
    """Round ``(N, D)`` to float16; scale rows that would overflow, which keeps their cosines.

    Deep networks with random weights produce features up to 1e12.
    """
    largest = features.abs().amax(dim=1, keepdim=True)
    return (features / (largest / _MOST_HALF).clamp(min=1)).half()
