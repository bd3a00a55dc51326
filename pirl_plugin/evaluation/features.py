"""Frozen features of a folder of images: read, centre-cropped, a batch at a time."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Subset
from torchvision.transforms.v2 import functional as tv
from tqdm import tqdm

from pirl_plugin.checkpoints.training_run import channel_statistics
from pirl_plugin.files import write_json
from pirl_plugin.images.folders import class_folders
from pirl_plugin.images.sources import FolderSource
from pirl_plugin.views.pixels import IMAGENET_MEAN, IMAGENET_STD, normalize_images

if TYPE_CHECKING:
    from pirl_plugin.images.sources import ImageSource

_LONGEST = 4  # longer side over the shorter one, of what is resized
_MOST_WORKERS = 16
_IMAGES_PER_WORKER = 256  # fewer are decoded in less time than a process takes to start


def centre_crop(image: Tensor, size: int) -> Tensor:
    """Crop the middle of an image, its shorter side resized to 8/7 of ``size`` (256 for 224).

    Args:
        image: uint8 ``(3, H, W)``.
        size: side of the crop, pixels.

    Returns:
        uint8 ``(3, size, size)``.
    """
    height, width = image.shape[1:]
    most = _LONGEST * min(height, width)
    if max(height, width) > most:  # resized whole, a thin image would take gigabytes
        image = tv.center_crop(image, [min(height, most), min(width, most)])
    return tv.center_crop(tv.resize(image, [round(size * 8 / 7)], antialias=True), [size, size])


def evenly_spaced(total: int, count: int) -> list[int]:
    """Return ``count`` rows of ``total``, spread evenly; all where there are fewer.

    Example:
        >>> evenly_spaced(15, 8)
        [0, 1, 3, 5, 7, 9, 11, 13]
    """
    count = min(count, total)
    return [i * total // count for i in range(count)]


def normalization_of(config: Mapping[str, Any] | None) -> Callable[[Tensor], Tensor]:
    """Return what normalises images as a run did; as ImageNet's where it says nothing."""
    mean, std = channel_statistics(config)
    return partial(normalize_images, mean=mean or IMAGENET_MEAN, std=std or IMAGENET_STD)


@torch.no_grad()
def trunk_features(
    trunk: nn.Module,
    images: Tensor,
    batch: int = 128,
    normalize: Callable[[Tensor], Tensor] = normalize_images,
) -> Tensor:
    """Compute pooled res5 features.

    Args:
        trunk: as of :func:`~pirl_plugin.checkpoints.load.load_trunk`, in evaluation mode.
        images: uint8 ``(N, 3, H, W)``, on any device; a batch at a time goes to the trunk's.
        batch: images at a time.
        normalize: uint8 images to floats, as in the trunk's training.

    Returns:
        float32 ``(N, D)``, on the trunk's device.
    """
    device = next(trunk.parameters()).device
    parts = [trunk(normalize(part.to(device)), ["flatten"])[0] for part in images.split(batch)]
    return torch.cat(parts)


def val_folder(root: Path) -> Path | None:
    """Return ``root/val`` or ``root/validation``, whichever there is."""
    return next((p for p in (root / "val", root / "validation") if p.is_dir()), None)


def labelled_folders(root: Path) -> tuple[Path, Path, list[str]]:
    """Return the folders of training and of test images, and the names of the classes.

    Raises:
        FileNotFoundError: a folder is missing.
        ValueError: they hold different classes, or fewer than two.
    """
    train, test = root / "train", val_folder(root)
    if not train.is_dir() or test is None:
        raise FileNotFoundError(
            f"--data = {root}: expected train/CLASS/* and val/CLASS/* (or validation/) in it; give "
            f"the folder above them"
        )
    classes, tested = class_folders(str(train)), class_folders(str(test))
    if classes != tested or len(classes) < 2:
        found = sorted(set(classes) ^ set(tested)) or classes
        raise ValueError(
            f"--data = {root}: expected the same two or more class folders in {train.name} and "
            f"{test.name}, found {len(classes)} and {len(tested)}; look at {found[:3]}"
        )
    return train, test, classes


def labelled_sources(root: Path) -> tuple[FolderSource, FolderSource]:
    """Return training and test images.

    Raises:
        FileNotFoundError: a folder is missing.
        ValueError: they hold different classes, or fewer than two, or images in no class.
    """
    train, test = map(FolderSource, labelled_folders(root)[:2])
    for source in (train, test):
        if (source.labels() < 0).any():
            path = source.path_of(int(source.labels().argmin()))
            raise ValueError(f"{path}: expected each image in the folder of its class; move it")
    return train, test


class Crops(Dataset[tuple[Tensor, bool]]):
    """Centre crops of the images of sources, one source after the other.

    Args:
        sources: of images.
        size: side of the crops, pixels.
    """

    def __init__(self, sources: Sequence[ImageSource], size: int) -> None:
        self._sources, self._size = sources, size

    def __len__(self) -> int:
        return sum(map(len, self._sources))

    def __getitem__(self, row: int) -> tuple[Tensor, bool]:
        """Return uint8 ``(3, size, size)`` and whether the image could be read."""
        for source in self._sources:
            if row < len(source):
                image, is_valid = source[row]
                return centre_crop(image, self._size), is_valid
            row -= len(source)
        raise IndexError(row)


def extract_features(
    trunks: Sequence[nn.Module],
    crops: Crops | Subset[tuple[Tensor, bool]],
    *,
    batch: int = 128,
    workers: int | None = None,
    normalize: Callable[[Tensor], Tensor] = normalize_images,
    file: Path | None = None,
    described: Mapping[str, Any] | None = None,
) -> tuple[NDArray[np.float16], NDArray[np.bool_]]:
    """Compute the pooled features of several trunks of the same width; each image is read once.

    Args:
        trunks: T of them, in evaluation mode, on one device.
        crops: N images.
        batch: images at a time.
        workers: processes that decode; None: by the number of cores and of images.
        normalize: uint8 images to floats, as in the trunks' training.
        file: a ``.npy`` that the features are written to as they come. A call that was interrupted
            goes on where it stopped, and a finished file is used as it is.
        described: JSON of what the features are of, written beside ``file`` as ``NAME.json``.

    Returns:
        float16 ``(T, N, D)``, in memory or mapped from the file, and bool ``(N,)``: whether each
        image could be read. The features of one that could not are -inf.

    Raises:
        ValueError: the file holds features of something else.
    """
    found: NDArray[np.float16] | None = None
    done, about, notes = 0, dict(described or {}), file and file.with_name(f"{file.name}.json")
    if file is not None and notes is not None and notes.is_file():
        before = json.loads(notes.read_text())
        if before["of"] != about:
            raise ValueError(
                f"--features = {file}: expected features of {about}, found {before['of']}; name "
                f"another file"
            )
        done, found = before["done"], np.lib.format.open_memmap(file, "r+")
    if workers is None:
        workers = min(torch.get_num_threads(), _MOST_WORKERS, len(crops) // _IMAGES_PER_WORKER)
        workers = workers if workers > 1 else 0
    remaining, context = Subset(crops, range(done, len(crops))), "forkserver" if workers else None
    loader = DataLoader(remaining, batch, num_workers=workers, multiprocessing_context=context)
    interval = 0.5 if sys.stderr.isatty() else 20  # seconds; a line now and then in a log
    with tqdm(
        total=len(crops), initial=done, desc="features", unit=" images", mininterval=interval
    ) as bar:
        for images, valid in loader:
            features = [trunk_features(trunk, images, batch, normalize) for trunk in trunks]
            part = torch.stack(features).cpu().numpy().astype(np.float16)  # (T, B, D)
            part[:, ~valid.numpy()] = -np.inf
            if found is None:
                shape = (len(trunks), len(crops), part.shape[2])
                found = (
                    np.empty(shape, np.float16)
                    if file is None
                    else np.lib.format.open_memmap(file, "w+", np.float16, shape)
                )
            found[:, done : done + len(valid)] = part
            done += len(valid)
            bar.update(len(valid))
            if notes is not None and isinstance(found, np.memmap):
                found.flush()
                write_json(notes, {"of": about, "done": done})
    assert found is not None  # there are images
    return found, found[0, :, 0] != -np.inf
