"""Frozen features of images: read, crop at the centre, and compute, a batch at a time."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Subset
from torchvision.transforms.v2 import functional as tv
from tqdm import tqdm

from pirl_plugin.failures import MissingFile, Refused
from pirl_plugin.files import write_json
from pirl_plugin.images.folders import SPLITS, class_folders, find_split
from pirl_plugin.images.sources import FolderSource, ImageSource, open_source
from pirl_plugin.views.pixels import normalize_images

_MOST_WORKERS = 16
_IMAGES_PER_WORKER = 256  # decoding fewer images is faster than starting a process


def centre_crop(image: Tensor, size: int) -> Tensor:
    """Resize the shorter side of an image to 8/7 of ``size`` (256 for 224), and crop the middle.

    Args:
        image: uint8 ``(3, H, W)``.
        size: side of the crop, pixels.

    Returns:
        uint8 ``(3, size, size)``.
    """
    return tv.center_crop(tv.resize(image, [round(size * 8 / 7)], antialias=True), [size, size])


def evenly_spaced(total: int, count: int) -> list[int]:
    """Return ``count`` evenly spread rows of ``total``; all rows if there are fewer.

    Example:
        >>> evenly_spaced(15, 8)
        [0, 1, 3, 5, 7, 9, 11, 13]
    """
    count = min(count, total)
    return [i * total // count for i in range(count)]


def labelled_folders(root: Path) -> tuple[Path, Path, list[str]]:
    """Return the folders of training and of test images, and the names of the classes.

    Raises:
        FileNotFoundError: a folder is missing.
        ValueError: the folders have different classes, or fewer than two.
    """
    train, test = _splits(root)
    classes = class_folders(train)
    test_classes = class_folders(test)
    if classes != test_classes or len(classes) < 2:
        different = sorted(set(classes) ^ set(test_classes))
        raise Refused(
            f"--data = {root}: expected the same two or more class folders in {train.name} and "
            f"{test.name}, found {len(classes)} and {len(test_classes)}"
            + (f"; look at {different[:3]}" if different else "")
        )
    return train, test, classes


def labelled_sources(root: Path) -> list[ImageSource]:
    """Open ``train`` and ``val``: folders of class folders, tars or tables, or lists ``train.*``.

    Other usual names, such as ``validation``, are in :data:`pirl_plugin.images.folders.SPLITS`.

    Raises:
        FileNotFoundError: one is missing.
        ValueError: the two have different classes, or a folder has fewer than two.
    """
    train, test = sources = [open_source(path) for path in _splits(root, lists=True)]
    if isinstance(train, FolderSource):
        labelled_folders(root)
    if train.classes != test.classes:
        raise Refused(
            f"--data = {root}: expected the same classes in {train.path} and {test.path}, found "
            f"{train.classes} and {test.classes}"
        )
    return sources


def _splits(root: Path, lists: bool = False) -> tuple[Path, Path]:
    """Return the folders (or lists) of training and of test images."""
    train = find_split(root, "train", lists)
    test = find_split(root, "val", lists)
    if train is None or test is None:
        names = sorted(path.name for path in root.iterdir()) if root.is_dir() else []
        shown = ", ".join(names[:5]) + ", …" * (len(names) > 5) or "nothing"
        raise MissingFile(
            f"--data = {root}: expected train/CLASS/* and val/CLASS/* in it (or "
            f"{', '.join(SPLITS['val'][1:4])}{'; or lists, train.csv' * lists}), found {shown}"
        )
    return train, test


class Crops(Dataset[tuple[Tensor, bool]]):
    """Centre crops of the images of a source.

    Args:
        source: the source of images.
        size: side of the crops, pixels.
    """

    def __init__(self, source: ImageSource, size: int) -> None:
        self._source, self._size = source, size

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, row: int) -> tuple[Tensor, bool]:
        """Return uint8 ``(3, size, size)`` and whether the image could be read."""
        image, is_valid = self._source[row]
        return centre_crop(image, self._size), is_valid


def extract_features(
    trunks: Sequence[nn.Module],
    crops: Dataset[tuple[Tensor, bool]],
    *,
    batch: int = 128,
    workers: int | None = None,
    normalize: Callable[[Tensor], Tensor] = normalize_images,
) -> tuple[Tensor, Tensor]:
    """Compute the pooled features of several trunks of the same width; read each image once.

    Args:
        trunks: T trunks, in evaluation mode, on one device.
        crops: N images.
        batch: images at a time.
        workers: processes that decode; None: from the number of cores and of images.
        normalize: maps uint8 images to floats, as in the trunks' training.

    Returns:
        float16 ``(T, N, D)`` and bool ``(N,)``, whether each image could be read, on the CPU.
    """
    count, done = len(crops), 0  # type: ignore[arg-type]
    found, readable = torch.empty(len(trunks), count, 0), torch.empty(count, dtype=torch.bool)
    for part, valid in _compute(trunks, crops, 0, batch, workers, normalize):
        if done == 0:  # one tensor from the start: concatenating parts would need twice the memory
            found = torch.empty(len(trunks), count, part.shape[2], dtype=torch.float16)
        found[:, done : done + len(valid)] = part
        readable[done : done + len(valid)] = valid
        done += len(valid)
    return found, readable


def store_features(
    file: Path,
    described: Mapping[str, Any],
    trunks: Sequence[nn.Module],
    crops: Dataset[tuple[Tensor, bool]],
    **how: Any,
) -> Tensor:
    """Write the features of :func:`extract_features` to a file, and resume a stopped call.

    Args:
        file: a ``.npy`` of float16 ``(T, N, D)``. ``NAME.json`` beside it has the progress.
        described: JSON that identifies images and network; a file with other values is refused.
        trunks: T trunks.
        crops: N images.
        how: other arguments of :func:`extract_features`.

    Returns:
        bool ``(N,)``, whether each image could be read.

    Raises:
        ValueError: the file holds other features.
    """
    notes = file.with_name(f"{file.name}.json")
    state: dict[str, Any] = {"of": {}, "done": 0, "unreadable": []}
    if file.exists():
        state = json.loads(notes.read_text()) if notes.is_file() else state
        if different := [key for key in described if state["of"].get(key) != described[key]]:
            raise Refused(
                f"--features = {file}: expected features of the same images and checkpoint, but "
                f"this file has another {' and '.join(different)}; name another file"
            )
    done, unreadable = state["done"], state["unreadable"]
    for part, valid in _compute(trunks, crops, done, **how):
        if done == 0:
            write_json(notes, {"of": described, "done": 0, "unreadable": []})
            shape = (len(trunks), len(crops), part.shape[2])  # type: ignore[arg-type]
            np.lib.format.open_memmap(file, "w+", np.float16, shape)
            with file.open("r+b") as whole:  # so a full disk is an error here, not a later crash
                os.posix_fallocate(whole.fileno(), 0, file.stat().st_size)
        stored = np.lib.format.open_memmap(file, "r+")  # a new map frees the memory of the old one
        stored[:, done : done + len(valid)] = part.half().cpu().numpy()
        stored.flush()
        unreadable += [done + row for row, is_valid in enumerate(valid.tolist()) if not is_valid]
        done += len(valid)
        write_json(notes, {"of": described, "done": done, "unreadable": unreadable})
    readable = torch.ones(done, dtype=torch.bool)
    readable[unreadable] = False
    return readable


@torch.no_grad()
def _compute(
    trunks: Sequence[nn.Module],
    crops: Dataset[tuple[Tensor, bool]],
    done: int,
    batch: int = 128,
    workers: int | None = None,
    normalize: Callable[[Tensor], Tensor] = normalize_images,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield features ``(T, B, D)`` of the images after the first ``done``, and their validity."""
    count = len(crops)  # type: ignore[arg-type]
    if workers is None:
        workers = min(torch.get_num_threads(), _MOST_WORKERS, (count - done) // _IMAGES_PER_WORKER)
        workers = workers if workers > 1 else 0
    remaining, context = Subset(crops, range(done, count)), "forkserver" if workers else None
    loader = DataLoader(remaining, batch, num_workers=workers, multiprocessing_context=context)
    device = next(trunks[0].parameters()).device
    interval = 0.5 if sys.stderr.isatty() else 20  # seconds between updates; few lines in a log
    with tqdm(
        total=count, initial=done, desc="features", unit=" images", mininterval=interval
    ) as bar:
        for images, valid in loader:
            pixels = normalize(images.to(device))
            yield torch.stack([trunk(pixels, ["flatten"])[0] for trunk in trunks]), valid
            bar.update(len(valid))
