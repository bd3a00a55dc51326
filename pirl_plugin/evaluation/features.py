"""Frozen features of a folder of images: read, centre-cropped, a batch at a time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms.v2 import functional as tv
from tqdm import tqdm

from pirl_plugin.checkpoints.training_run import channel_statistics
from pirl_plugin.images.folders import class_folders
from pirl_plugin.views.pixels import IMAGENET_MEAN, IMAGENET_STD, normalize_images

if TYPE_CHECKING:
    from pirl_plugin.images.sources import ImageSource

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


def labelled_folders(root: Path) -> tuple[Path, Path, list[str]]:
    """Return the folders of training and of test images, and the names of the classes.

    Raises:
        FileNotFoundError: a folder is missing.
        ValueError: they hold different classes, or fewer than two.
    """
    train, test = root / "train", root / "val"
    if not train.is_dir() or not test.is_dir():
        raise FileNotFoundError(
            f"--data = {root}: expected train/CLASS/* and val/CLASS/* in it; give the folder "
            f"above them"
        )
    classes, tested = class_folders(str(train)), class_folders(str(test))
    if classes != tested or len(classes) < 2:
        found = sorted(set(classes) ^ set(tested)) or classes
        raise ValueError(
            f"--data = {root}: expected the same two or more class folders in {train.name} and "
            f"{test.name}, found {len(classes)} and {len(tested)}; look at {found[:3]}"
        )
    return train, test, classes


class Crops(Dataset[tuple[Tensor, bool]]):
    """Centre crops of the images of a source.

    Args:
        source: of images.
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
    """Compute the pooled features of several trunks of the same width; each image is read once.

    Args:
        trunks: T of them, in evaluation mode, on one device.
        crops: N images.
        batch: images at a time.
        workers: processes that decode; None: by the number of cores and of images.
        normalize: uint8 images to floats, as in the trunks' training.

    Returns:
        float16 ``(T, N, D)`` and bool ``(N,)``, whether each image could be read, on the CPU.
    """
    count = len(crops)  # type: ignore[arg-type]
    if workers is None:
        workers = min(torch.get_num_threads(), _MOST_WORKERS, count // _IMAGES_PER_WORKER)
        workers = workers if workers > 1 else 0
    context = "forkserver" if workers else None
    loader = DataLoader(crops, batch, num_workers=workers, multiprocessing_context=context)
    found, readable = torch.empty(len(trunks), count, 0), torch.empty(count, dtype=torch.bool)
    interval, done = 0.5 if sys.stderr.isatty() else 20, 0  # seconds; a line now and then in a log
    with tqdm(total=count, desc="features", unit=" images", mininterval=interval) as bar:
        for images, valid in loader:
            part = torch.stack([trunk_features(each, images, batch, normalize) for each in trunks])
            if done == 0:  # one tensor from the beginning: parts and their sum would take twice it
                found = torch.empty(len(trunks), count, part.shape[2], dtype=torch.float16)
            found[:, done : done + len(valid)] = part
            readable[done : done + len(valid)] = valid
            done += len(valid)
            bar.update(len(valid))
    return found, readable
