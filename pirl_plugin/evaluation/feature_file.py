"""Files of features, filled while they are computed.

A stopped command resumes. ``NAME.npz`` holds, for the N images that could be read:
``features`` float32 (N, D), ``files`` (N,), and if known ``labels`` (N,), ``classes`` (their names)
and ``splits`` (N,); if the checkpoint has a classifier, ``predicted`` (N,), names of classes, and
``probability`` float32 (N,); ``unreadable`` names the others. ``numpy.load`` reads it. Tables,
``NAME.csv`` and ``NAME.parquet``, have a row for each of these images. Until the file is whole, its
parts are in ``NAME.npz.unfinished/``.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import json
import logging
import math
import os
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pirl_plugin.checkpoints.classifier import Classifier
from pirl_plugin.evaluation.features import compute_features, to_half
from pirl_plugin.images.classes import NoLabels
from pirl_plugin.images.labelled import joined_labels
from pirl_plugin.images.opening import ImageSource
from pirl_plugin.images.source import content_stamp
from pirl_plugin.models.network_config import NetworkConfig
from pirl_plugin.models.trunks import LAST, AnyTrunk
from pirl_plugin.system.arguments import weights_name
from pirl_plugin.system.comparison import differences
from pirl_plugin.system.failures import Refused
from pirl_plugin.system.files import atomic_write, check_space, naming_failures, remove, write_json
from pirl_plugin.system.text import printable
from pirl_plugin.system.watcher import resumable

_CONTENT = "content of images"
_BLOCK = 4096  # images at a time, when a file is read or written


class FeatureFile:
    """A file of one network's features, perhaps not yet whole.

    Args:
        path: ``.npz``, ``.csv`` or ``.parquet``.
        description: JSON that identifies images and network; a file of other features is refused.
        root: the user's path of the images; ``files`` are relative to it.
        splits: split to source of images, in their order in the file; one source has the split
            ``""``.
        classifier: of the features, whose predictions the file has; None: it has none.

    Attributes:
        splits: as given.
        num_done: number of images, from the first, that have been read.
        unreadable: the rows of the images that could not be read.

    Raises:
        ValueError: the file holds other features.
    """

    def __init__(
        self,
        path: Path,
        description: Mapping[str, Any],
        root: Path | None,
        splits: Mapping[str, ImageSource],
        classifier: Classifier | None = None,
    ) -> None:
        self.splits = dict(splits)
        self.path = path
        self._classifier = classifier
        self._root = "" if root is None else os.path.join(root, "")
        self._parts = path.with_name(f"{path.name}.unfinished")
        self._stored = self._parts / "features.f32"  # float32, of the images that could be read
        self._about = json.loads(json.dumps(description))  # as it will be read
        new = {"about": self._about, "done": 0, "unreadable": [], "bytes": 0}
        progress = self._recorded() or new
        differs = differences(self._about, progress["about"], free=[_CONTENT])
        if not differs and not self._is_current(progress):
            logging.root.warning(
                f"{path}: computed again, because images of the same names changed"
            )
            self.path.unlink(missing_ok=True)
            progress = new
        self.num_done = progress["done"]
        self.unreadable = progress["unreadable"]
        self._num_bytes = progress["bytes"]
        if differs:
            keys = " and ".join(dict.fromkeys(key.partition(".")[0] for key in differs))
            recorded = path if path.exists() else self._parts
            raise Refused(
                f"{recorded}: expected features of the same images and network, but it has "
                f"another {keys}; name another file, or remove it"
            )

    @property
    def readable(self) -> Tensor:
        """Bool ``(images,)``: whether each image could be read."""
        readable = torch.ones(sum(map(len, self.splits.values())), dtype=torch.bool)
        readable[self.unreadable] = False
        return readable

    def append(self, features: Tensor, readable: Tensor) -> None:
        """Store the features of the next B images; they survive the end of the process.

        Args:
            features: floating ``(B, D)``, on any device.
            readable: bool ``(B,)``, whether each image could be read.
        """
        stored = features[readable].float().cpu().numpy()
        if self.num_done == 0:
            num_bytes = stored.itemsize * features.shape[1] * len(self.readable)
            check_space(self.path.parent, num_bytes, "Choose a folder on another disk.")
        with naming_failures(self._parts):
            self._parts.mkdir(parents=True, exist_ok=True)
            with self._stored.open("r+b" if self.num_done else "wb") as file:
                # A stopped command may have stored a batch that its progress does not count.
                file.truncate(self._num_bytes)
                file.seek(0, os.SEEK_END)
                file.write(stored.tobytes())
                file.flush()
                os.fsync(file.fileno())
                self._num_bytes = file.tell()
        self.unreadable += (self.num_done + (~readable).nonzero()[:, 0]).tolist()
        self.num_done += len(readable)
        write_json(self._parts / "progress.json", self._progress)

    def finish(self) -> None:
        """Write the file from its parts, and remove them; a whole file stays as it is.

        Raises:
            Refused: no image can be read.
        """
        if len(self.unreadable) == self.num_done:
            remove(self._parts)
            paths = " and ".join(source.path for source in self.splits.values())
            raise Refused(f"{paths}: expected images that can be read, found none")
        if self.path.is_file():
            return
        stored = np.memmap(self._stored, np.float32, "r")  # on the disk: it may be large
        features = stored.reshape(self.num_done - len(self.unreadable), -1)
        write = {".npz": self._write_npz, ".csv": self._write_csv, ".parquet": self._write_parquet}
        write[self.path.suffix](features, self._columns(features))
        remove(self._parts)

    def half_features(self) -> Tensor:
        """Return the features of the N readable images, float16 ``(N, D)``, mapped from a file."""
        with zipfile.ZipFile(self.path) as npz, npz.open("features.npy") as file:
            return _half_copy(file, self.path.parent)

    def unreadable_files(self) -> list[str]:
        """Return the names of the images that could not be read."""
        unreadable = set(self.unreadable)
        return [name for row, name in enumerate(self._names()) if row in unreadable]

    @property
    def _progress(self) -> dict[str, Any]:
        """What identifies the features, and the images that have been read."""
        return {
            "about": self._about,
            "done": self.num_done,
            "unreadable": self.unreadable,
            "bytes": self._num_bytes,
        }

    def _is_current(self, progress: Mapping[str, Any]) -> bool:
        """Return whether the features of an earlier command are those of the images now.

        They are not if images have changed, if one that could not be read can be read now, or if
        the parts are shorter than they were.
        """
        if progress["about"].get(_CONTENT) != self._about[_CONTENT]:
            return False
        if not self.path.exists() and progress["done"]:
            is_short = not self._stored.is_file()
            if is_short or self._stored.stat().st_size < progress["bytes"]:
                return False
        unreadable = set(progress["unreadable"])
        sources = self.splits.values()
        images = ((source, row) for source in sources for row in range(len(source)))
        return not any(
            source[row][1] for number, (source, row) in enumerate(images) if number in unreadable
        )

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
            return {key: progress[key] for key in ("about", "done", "unreadable", "bytes")}
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
        for source in self.splits.values():
            for row in range(len(source)):
                yield source.path_of(row).removeprefix(self._root)

    def _columns(self, features: NDArray[np.float32]) -> dict[str, Any]:
        """Return the columns of a table of the images that could be read, without features."""
        readable = self.readable.numpy()
        columns: dict[str, Any] = {"file": np.array(list(self._names()))[readable]}
        with suppress(NoLabels):
            classes, labels = joined_labels(self.splits)
            columns["label"] = labels[readable]
            columns["class"] = np.array([*classes, ""])[columns["label"]]  # -1: no class
        if len(self.splits) > 1:
            names = list(self.splits)
            lengths = [len(source) for source in self.splits.values()]
            columns["split"] = np.repeat(names, lengths)[readable]
        if self._classifier is not None:
            columns |= _predict(self._classifier, features)
        return columns

    def _write_npz(self, features: NDArray[np.float32], columns: dict[str, Any]) -> None:
        names = {"file": "files", "label": "labels", "split": "splits"}
        arrays = {names.get(name, name): values for name, values in columns.items()}
        if arrays.pop("class", None) is not None:
            arrays["classes"] = np.array(next(iter(self.splits.values())).classes)
        arrays["unreadable"] = np.array(self.unreadable_files(), dtype=np.str_)
        arrays["progress"] = np.array(json.dumps(self._progress))
        with atomic_write(self.path) as file:
            np.savez(file, features=features, **arrays)

    def _write_csv(self, features: NDArray[np.float32], columns: dict[str, Any]) -> None:
        write_json(self._beside, self._progress)
        with atomic_write(self.path) as file:
            text = io.TextIOWrapper(file, "utf-8", "surrogateescape", newline="")
            writer = csv.writer(text)
            writer.writerow([*columns, *(f"feature{i}" for i in range(features.shape[1]))])
            for row, values in enumerate(features):
                writer.writerow([*(column[row] for column in columns.values()), *values.tolist()])
            text.flush()
            text.detach()  # otherwise it would close the file

    def _write_parquet(self, features: NDArray[np.float32], columns: dict[str, Any]) -> None:
        import pyarrow
        from pyarrow import parquet

        # Arrow's texts are UTF-8, and names of files and of folders, the classes, need not be.
        for name, cells in columns.items():
            if cells.dtype.kind == "U":
                columns[name] = list(map(printable, cells.tolist()))
        values = pyarrow.array(features.reshape(-1))
        rows = pyarrow.FixedSizeListArray.from_arrays(values, features.shape[1])
        table = pyarrow.table({**columns, "features": rows})
        write_json(self._beside, self._progress)
        with atomic_write(self.path) as file:
            parquet.write_table(table, file, row_group_size=_BLOCK)


def fill(
    files: Sequence[FeatureFile],
    trunks: Sequence[AnyTrunk],
    layer: str,
    batch: int,
    workers: int | None,
) -> None:
    """Compute the features that files of the same images do not have yet, and finish them.

    Args:
        files: one for each trunk.
        trunks: the networks, in evaluation mode, on one device; of images of the same kind.
        layer: name of the layer.
        batch: images at a time.
        workers: processes that decode; None: from the number of cores and of images.
    """
    sources = list(files[0].splits.values())
    # Files with equally many features are filled together, so that each image is read once.
    groups: dict[int, list[int]] = {}
    for number, file in enumerate(files):
        groups.setdefault(file.num_done, []).append(number)
    for num_done, group in groups.items():
        rows = range(num_done, sum(map(len, sources)))
        networks = [trunks[number] for number in group]
        config = networks[0].network_config
        batches = compute_features(networks, sources, config, rows, batch, workers, [layer])
        with resumable():
            for features, readable in batches if rows else ():
                for number, part in zip(group, features, strict=True):
                    files[number].append(part, readable)
        for number in group:
            files[number].finish()


def describe_features(
    options: argparse.Namespace, config: NetworkConfig, splits: Mapping[str, ImageSource]
) -> dict[str, Any]:
    """Return JSON that identifies the features of images by a checkpoint's trunk."""
    checkpoint: list[Any] = [weights_name(options)]
    if options.checkpoint is not None:
        checkpoint.append(content_stamp(options.checkpoint))
    names = {}
    contents = {}
    for split, source in splits.items():
        names[split], contents[split] = source.fingerprint()
    with suppress(NoLabels):
        classes, labels = joined_labels(splits)
        contents["classes"] = hashlib.sha256(json.dumps(classes).encode()).hexdigest()
        contents["labels"] = hashlib.sha256(labels.tobytes()).hexdigest()
    return {
        "checkpoint": checkpoint,
        "network": {
            "trunk": options.trunk,
            "timm": options.timm,
            "options": dict(options.timm_option),
        },
        "layer": options.layer or LAST,
        "size": config.size,
        "mean and std": [*config.mean, *config.std],
        "list of images": names,
        _CONTENT: contents,
    }


def _predict(classifier: Classifier, features: NDArray[np.float32]) -> dict[str, Any]:
    """Return the columns ``predicted``, names of classes, and ``probability``, float32."""
    classes = np.array(classifier.classes)
    predicted = []
    probabilities = []
    for start in range(0, len(features), _BLOCK):
        part = torch.from_numpy(features[start : start + _BLOCK].copy())
        index, probability = classifier.predict(part)
        predicted.append(classes[index.numpy()])
        probabilities.append(probability.numpy())
    return {
        "predicted": np.concatenate(predicted),
        "probability": np.concatenate(probabilities),
    }


def _half_copy(file: IO[bytes], folder: Path) -> Tensor:
    """Copy an array of an ``.npz`` file, a part at a time, as float16 into a file without a name.

    Args:
        file: of ``features.npy`` in the archive.
        folder: where the file without a name is.

    Returns:
        float16 ``(N, D)``, mapped from the file without a name: it may be larger than the memory.
    """
    np.lib.format.read_magic(file)
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    with tempfile.TemporaryFile(dir=folder) as copy:
        features = np.memmap(copy, np.float16, "w+", shape=shape)
    num_parts = math.ceil(len(features) / _BLOCK)
    for part in np.array_split(features, num_parts):  # views: writing fills `features`
        content = file.read(part.size * dtype.itemsize)
        read = np.frombuffer(content, dtype).reshape(part.shape)
        part[:] = to_half(torch.from_numpy(read.copy())).numpy()
    return torch.from_numpy(features)
