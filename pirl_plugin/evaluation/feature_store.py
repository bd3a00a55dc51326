"""Store features on disk while they are computed, and write the files for ``embed``.

``NAME.npz`` holds, for the N readable images: ``features`` float32 (N, D), ``files`` (N,),
``digests`` int64 (N,), equal for images with equal pixels, and if known, ``labels`` (N,) and
``classes`` (class names). If the checkpoint has a classifier, it also holds ``predicted`` (N,),
class names, and ``probability`` float32 (N,). ``unreadable`` names the other images.
For ``--nearest``, ``paths`` and ``stamps`` (N,) are the files' paths, sizes and times.
``numpy.load`` reads the file. Tables, ``NAME.csv`` and ``NAME.parquet``, have one row per readable
image.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pirl_plugin.evaluation.feature_tables import write_table
from pirl_plugin.images.classes import NoLabels
from pirl_plugin.images.source import ImageSource, content_stamp
from pirl_plugin.system.comparison import differences
from pirl_plugin.system.failures import Refused
from pirl_plugin.system.files import (
    atomic_write,
    digest_of,
    naming_failures,
    open_itself,
    remove,
    write_json,
)

_PROGRESS = "progress.json"
_REPLACE = "Choose another file name, or delete it."


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


class FeatureFile:
    """A feature file, perhaps still incomplete.

    Args:
        path: ``.npz``, ``.csv`` or ``.parquet``.
        description: JSON that identifies the features for any images: network, layer and options.
        source: the images.
        root: folder that names in the file are relative to; None: absolute names.
        arrays: names of the arrays of features.

    Attributes:
        source: the images.
        readable: bool ``(images,)``, whether each image read so far is readable.
        is_complete: whether the file has features for all images.

    Raises:
        Refused: the file holds different features, or lacks some.
    """

    def __init__(
        self,
        path: Path,
        description: Mapping[str, Any],
        source: ImageSource,
        root: Path | None = None,
        arrays: Sequence[str] = ("features",),
    ) -> None:
        self.path = path
        self.source = source
        self._arrays = arrays
        self._prefix = "" if root is None else os.path.join(root, "")
        identity = {**description, "set of networks": arrays, **describe_images(source)}
        self._identity: dict[str, Any] = json.loads(json.dumps(identity))  # as it will be read back
        self._parts = path.with_name(f"{path.name}.unfinished")
        self._files: list[Any] = []  # one for each array of features, and the last for digests
        self._row_bytes: list[int] = []
        self.readable = torch.zeros(0, dtype=torch.bool)
        self.is_complete = path.exists()
        if self._parts.is_symlink():  # someone else may have planted it
            self.discard()
        file = path if self.is_complete else self._parts / _PROGRESS
        if not file.exists():
            return
        progress = read_progress(file)
        stored = path if self.is_complete else self._parts
        require_same(stored, self._identity, progress["identity"])
        self.readable = torch.ones(progress["done"], dtype=torch.bool)
        self.readable[progress["unreadable"]] = False
        self._row_bytes = progress["row_bytes"]
        if not self.is_complete:
            self._open_parts()
            return
        self._stored = np.load(path)
        lacking = {"digests", *arrays} - set(self._stored)
        if lacking:
            raise Refused(f"{path} lacks {' and '.join(sorted(lacking))}. {_REPLACE}")

    def append(self, batch: Batch) -> None:
        """Store features for the next images; the same command resumes after them."""
        arrays = [part[batch.readable].float() for part in batch.features]
        arrays.append(batch.digests[batch.readable, None])
        if not self._files:
            self.discard()
            self._row_bytes = [array.shape[1] * array.element_size() for array in arrays]
            self._open_parts()
        with naming_failures(self._parts):
            for file, array in zip(self._files, arrays, strict=True):
                file.write(array.cpu().numpy().tobytes())
                os.fsync(file.fileno())
        self.readable = torch.cat([self.readable, batch.readable])
        write_json(self._parts / _PROGRESS, self._progress())

    def _open_parts(self) -> None:
        """Open a file for each array, with the rows of the readable images."""
        with naming_failures(self._parts):
            self._parts.mkdir(exist_ok=True)
            for number, size in enumerate(self._row_bytes):
                part = self._parts / f"{number}.bin"
                file = open(part, "a+b", buffering=0, opener=open_itself)
                file.truncate(int(self.readable.sum()) * size)  # without a batch not yet counted
                self._files.append(file)

    @property
    def features(self) -> dict[str, NDArray[np.float32]]:
        """Name → ``(N, D)`` for the N readable images."""
        if self.is_complete:
            return {name: self._stored[name] for name in self._arrays}
        num_readable = int(self.readable.sum())
        features = {}
        for name, file in zip(self._arrays, self._files[:-1], strict=True):
            features[name] = np.memmap(file, np.float32, "r+").reshape(num_readable, -1)
        return features

    @property
    def digests(self) -> NDArray[np.int64]:
        """Digest of each readable image, int64 ``(N,)``."""
        if self.is_complete:
            return self._stored["digests"]
        return np.memmap(self._files[-1], np.int64, "r+")

    def holds(self, columns: Iterable[str]) -> bool:
        """Return whether the file is complete, with these columns."""
        return self.is_complete and set(columns) <= set(self._stored)

    def discard(self) -> None:
        """Remove the parts of an incomplete file."""
        remove(self._parts)

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
        names = self.readable_names()
        labels = self._labels()
        if self.path.suffix == ".npz":
            self._write_npz({"files": names, **columns, **features}, labels)
        else:
            table: dict[str, NDArray[Any]] = {"file": names}
            if labels is not None:
                classes = np.array([*self.source.classes, ""])  # the last is for NO_CLASS, −1
                table |= {"label": labels, "class": classes[labels]}
            write_table(self.path, {**table, **columns}, features, order)
        remove(self._parts)

    def _write_npz(self, arrays: dict[str, NDArray[Any]], labels: NDArray[np.int64] | None) -> None:
        if labels is not None:
            arrays |= {"labels": labels, "classes": np.array(self.source.classes)}
        arrays["digests"] = self.digests
        arrays["paths"] = self.readable_paths()
        arrays["stamps"] = np.array(list(map(content_stamp, arrays["paths"])), np.str_)
        arrays["unreadable"] = np.array(self.unreadable_names(), dtype=np.str_)
        arrays["progress"] = np.array(json.dumps(self._progress()))
        with atomic_write(self.path) as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]

    def readable_names(self) -> NDArray[np.str_]:
        """Return the N readable images' names."""
        return np.array(self._names(self.readable))

    def readable_paths(self) -> NDArray[np.str_]:
        """Return the N readable images' paths, without symbolic links."""
        rows = self.readable.nonzero()[:, 0].tolist()
        return np.array([os.path.realpath(self.source.path_of(row)) for row in rows], np.str_)

    def unreadable_names(self) -> list[str]:
        """Return the unreadable images' names."""
        return self._names(~self.readable)

    def _names(self, is_named: Tensor) -> list[str]:
        paths = map(self.source.path_of, is_named.nonzero()[:, 0].tolist())
        return [path.removeprefix(self._prefix) for path in paths]

    def _labels(self) -> NDArray[np.int64] | None:
        """Return the labels of the readable images; None if the source names no classes."""
        with suppress(NoLabels):
            if self.source.classes:
                return self.source.labels()[self.readable.numpy()]
        return None

    def _progress(self) -> dict[str, Any]:
        return {
            "identity": self._identity,
            "done": len(self.readable),
            "unreadable": (~self.readable).nonzero()[:, 0].tolist(),
            "row_bytes": self._row_bytes,
        }


def read_progress(file: Path, remedy: str = _REPLACE) -> dict[str, Any]:
    """Return the progress that an earlier command recorded.

    Args:
        file: the file.
        remedy: what to do if there is none, as a sentence.

    Raises:
        Refused: the file is damaged, or another program wrote it.
    """
    try:
        text = str(np.load(file)["progress"]) if file.suffix == ".npz" else file.read_text()
        progress = json.loads(text)
        return {name: progress[name] for name in ("identity", "done", "unreadable", "row_bytes")}
    except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise Refused(f"{file} is damaged, or another program wrote it. {remedy}") from error


def require_same(
    file: Path,
    identity: Mapping[str, Any],
    recorded: Mapping[str, Any],
    remedy: str = _REPLACE,
) -> None:
    """Refuse a file with features for other images, or from another network or layer.

    Args:
        file: the file.
        identity: JSON that identifies the required features.
        recorded: the JSON in the file.
        remedy: what to do, as a sentence.
    """
    differs = differences(json.loads(json.dumps(identity)), recorded)
    if differs:
        keys = " and ".join(dict.fromkeys(key.partition(".")[0] for key in differs))
        raise Refused(f"{file} was computed for a different {keys}. {remedy}")


def describe_images(source: ImageSource) -> dict[str, Any]:
    """Return JSON that identifies a source's images and labels."""
    names, content = source.fingerprint()
    labels = ""
    with suppress(NoLabels):
        labels = digest_of([*source.classes, *map(str, source.labels())])
    return {"list of images": names, "version of the images or labels": [content, labels]}
