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
from collections.abc import Iterable, Mapping
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
from pirl_plugin.system.files import atomic_write, digest_of, remove

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
    """A feature file. While features are computed, a folder beside it has a file for each batch.

    Args:
        path: ``.npz``, ``.csv`` or ``.parquet``.
        description: JSON that identifies the features for any images: network, layer and options.
        source: the images.
        root: folder that names in the file are relative to; None: absolute names.

    Attributes:
        source: the images.
        readable: bool ``(images,)``, whether each image read so far is readable.
        columns: names of the arrays in the complete file; empty if it is incomplete.

    Raises:
        Refused: the file holds different features, or lacks some.
    """

    def __init__(
        self,
        path: Path,
        description: Mapping[str, Any],
        source: ImageSource,
        root: Path | None = None,
    ) -> None:
        self.path = path
        self.source = source
        self._prefix = "" if root is None else os.path.join(root, "")
        self._identity = {**description, **describe_images(source)}
        self._folder = path.with_name(f"{path.name}.unfinished")
        self._files: list[Path] = []
        self.readable = torch.zeros(0, dtype=torch.bool)
        if self._folder.is_symlink():  # someone else may have planted it
            self.discard()
        self.columns: set[str] = set()
        if path.exists():
            self._resume(path)
            with np.load(path) as content:
                self.columns = set(content)
            lacking = {"digests", "features"} - self.columns
            if lacking:
                raise Refused(f"{path} lacks {' and '.join(sorted(lacking))}. {_REPLACE}")
        else:
            while self._next_part().exists():
                self._resume(self._next_part())

    def take(self, file: Path, readable: Tensor) -> None:
        """Take the features of the next images from a file, instead of computing them.

        Args:
            file: ``.npz``, complete or a part.
            readable: bool ``(B,)``, whether each of these images is readable.
        """
        self._files.append(file)
        self.readable = torch.cat([self.readable, readable])

    def append(self, batch: Batch) -> None:
        """Store one layer's features for the next images; the same command resumes after them."""
        part = self._next_part()
        (features,) = batch.features
        arrays = {
            "digests": batch.digests[batch.readable].numpy(),
            "features": features[batch.readable].float().cpu().numpy(),
        }
        _save(part, arrays, self._identity, batch.readable)
        self.take(part, batch.readable)

    def _next_part(self) -> Path:
        """Return the file for the next batch, which is named after its first image."""
        return self._folder / f"{len(self.readable)}.npz"

    def _resume(self, file: Path) -> None:
        _, readable = read_progress(file, self._identity, _REPLACE)
        self.take(file, readable)

    @property
    def features(self) -> NDArray[np.float32]:
        """``(N, D)`` for the N readable images."""
        return self._array("features")

    @property
    def digests(self) -> NDArray[np.int64]:
        """Digest of each readable image, int64 ``(N,)``."""
        return self._array("digests")

    def _array(self, name: str) -> NDArray[Any]:
        array = np.empty(0)
        start = 0
        for file in self._files:
            with np.load(file) as content:
                values = content[name]
            if start == 0:  # one array, because joining parts would need twice the memory
                array = np.empty((int(self.readable.sum()), *values.shape[1:]), values.dtype)
            array[start : start + len(values)] = values
            start += len(values)
        return array

    def discard(self) -> None:
        """Remove the parts of an incomplete file."""
        remove(self._folder)

    def write(
        self,
        columns: Mapping[str, NDArray[Any]],
        order: NDArray[np.int64] | None = None,
    ) -> None:
        """Write the file, and remove its parts.

        Args:
            columns: additional columns for the N readable images; ``features`` comes last.
            order: int64 ``(N,)``, row order in a table; None: as read.
        """
        labels = self._labels()
        names = np.array([self._name_of(row) for row in self.rows], np.str_)
        if self.path.suffix != ".npz":
            table: dict[str, NDArray[Any]] = {"file": names}
            if labels is not None:
                classes = np.array([*self.source.classes, ""])  # the last is for NO_CLASS, −1
                table |= {"label": labels, "class": classes[labels]}
            write_table(self.path, {**table, **columns}, order)
        else:
            arrays = dict(columns)
            if labels is not None:
                arrays |= {"labels": labels, "classes": np.array(self.source.classes)}
            arrays |= {
                "files": names,
                "digests": self.digests,
                "paths": self.paths,
                "stamps": stamps_of(self.paths),
                "unreadable": np.array(self.unreadable_names, np.str_),
            }
            _save(self.path, arrays, self._identity, self.readable)
        self.discard()

    @property
    def rows(self) -> list[int]:
        """The N readable images' rows in the source."""
        return self.readable.nonzero()[:, 0].tolist()

    @property
    def paths(self) -> NDArray[np.str_]:
        """The N readable images' paths, without symbolic links."""
        return np.array([os.path.realpath(self.source.path_of(row)) for row in self.rows], np.str_)

    @property
    def unreadable_names(self) -> list[str]:
        """The unreadable images' names."""
        return [self._name_of(row) for row in (~self.readable).nonzero()[:, 0].tolist()]

    def _name_of(self, row: int) -> str:
        return self.source.path_of(row).removeprefix(self._prefix)

    def _labels(self) -> NDArray[np.int64] | None:
        """Return the labels of the readable images; None if the source names no classes."""
        with suppress(NoLabels):
            if self.source.classes:
                return self.source.labels()[self.readable.numpy()]
        return None


def _save(
    file: Path, arrays: Mapping[str, NDArray[Any]], identity: Mapping[str, Any], readable: Tensor
) -> None:
    """Write arrays for the readable images, and what identifies them."""
    progress = {
        "identity": identity,
        "done": len(readable),
        "unreadable": (~readable).nonzero()[:, 0].tolist(),
    }
    with atomic_write(file) as opened:
        np.savez(opened, **arrays, progress=np.array(json.dumps(progress)))  # type: ignore[arg-type]


def read_progress(
    file: Path, identity: Mapping[str, Any], remedy: str
) -> tuple[dict[str, Any], Tensor]:
    """Read what identifies a file's features.

    Args:
        file: ``.npz``, complete or a part.
        identity: JSON that identifies the required features.
        remedy: what to do about other features, as a sentence.

    Returns:
        JSON that identifies the features, and bool ``(images,)``, whether each image was readable.

    Raises:
        Refused: the file is damaged, another program wrote it, or it has features for other images,
            or from another network or layer.
    """
    try:
        with np.load(file) as content:
            progress = json.loads(str(content["progress"]))
        recorded = progress["identity"]
        readable = torch.ones(progress["done"], dtype=torch.bool)
        readable[progress["unreadable"]] = False
    except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise Refused(f"{file} is damaged, or another program wrote it. {remedy}") from error
    values = json.loads(json.dumps(identity))
    differs = differences(values, {key: recorded.get(key) for key in values})
    if differs:
        keys = " and ".join(dict.fromkeys(key.partition(".")[0] for key in differs))
        raise Refused(f"{file} was computed for a different {keys}. {remedy}")
    return recorded, readable


def stamps_of(paths: Iterable[str]) -> NDArray[np.str_]:
    """Return the files' sizes and times, ``(N,)``."""
    return np.array([content_stamp(path) for path in paths], np.str_)


def describe_images(source: ImageSource) -> dict[str, Any]:
    """Return JSON that identifies a source's images and labels."""
    names, content = source.fingerprint()
    labels = ""
    with suppress(NoLabels):
        labels = digest_of([*source.classes, *map(str, source.labels())])
    return {"list of images": names, "version of the images or labels": [content, labels]}
