"""Frozen features of images: read, crop at the centre, and compute, a batch at a time."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset
from torchvision.transforms.v2 import functional as tv

from pirl_plugin.checkpoints.load import fetch_trunk, load_trunk
from pirl_plugin.images.sources import ImageSource, open_source
from pirl_plugin.models.preprocessing import Preprocessing
from pirl_plugin.models.trunks import AnyTrunk, describe_network, evaluating
from pirl_plugin.system.arguments import trunk_options
from pirl_plugin.system.console import Progress
from pirl_plugin.system.loader import WatchedBatches, start_worker, wait_for_images
from pirl_plugin.system.processes import usable_cores

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


class Crops(Dataset[tuple[Tensor, bool]]):
    """Centre crops of the images of a source.

    Args:
        source: the source of images.
        size: side of the crops, pixels.
    """

    def __init__(self, source: ImageSource, size: int) -> None:
        source.decode_for(size)
        self._source = source
        self._size = size

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, row: int) -> tuple[Tensor, bool]:
        """Return uint8 ``(3, size, size)`` and whether the image could be read."""
        image, is_valid = self._source[row]
        return centre_crop(image, self._size), is_valid


def load_network(options: argparse.Namespace, device: str = "cpu") -> AnyTrunk:
    """Load the trunk that a command's options name, and say which network it is.

    Its preprocessing is the user's, or else the checkpoint's.

    Args:
        options: of ``checkpoint_options`` and ``image_options``.
        device: cpu, or cuda:N.
    """
    chosen = trunk_options(options)
    if options.checkpoint is None:
        trunk = fetch_trunk(chosen["timm"], chosen["timm_options"])
    else:
        trunk = load_trunk(options.checkpoint, **chosen)
    trunk.preprocessing = trunk.preprocessing.with_options(options.size, options.mean, options.std)
    print(f"network: {describe_network(trunk)}", flush=True)
    return trunk.to(device)


def extract_features(
    trunk: nn.Module,
    images: Any,
    *,
    size: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    batch: int = 128,
    workers: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute a network's features of the centre crops of images.

    Args:
        trunk: a module that maps normalised images ``(B, 3, size, size)`` to features ``(B, …)``,
            or to a list with one such tensor. It is in evaluation mode during the call.
        images: what :class:`pirl_plugin.ImageDataset` takes: a folder, a list, tars, or any
            map-style data set.
        size: side of the crops, pixels; None: the size in the trunk's training, if
            :func:`pirl_plugin.load_trunk` loaded it, or else 224.
        mean: mean of each channel, 0 to 1; None: as in the training, or else ImageNet's.
        std: standard deviation of each channel; None as for ``mean``.
        batch: images at a time.
        workers: processes that decode; None: from the number of cores and of images.

    Returns:
        float32 ``(N, D)`` on the CPU, and bool ``(N,)``, whether each image could be read. The
        features of an unreadable image are NaN; the log names it.

    Raises:
        FileNotFoundError: there are no such images.
        ValueError: there are fewer than two images.

    Example:
        >>> from pirl_plugin import WideResNet
        >>> photos = [torch.randint(256, (3, 60, 80), dtype=torch.uint8) for _ in range(4)]
        >>> features, readable = extract_features(WideResNet(10, 0.5), photos, size=32)
        >>> features.shape, features.dtype, readable.tolist()
        (torch.Size([4, 256]), torch.float32, [True, True, True, True])
    """
    of_trunk = getattr(trunk, "preprocessing", Preprocessing())
    preprocessing = of_trunk.with_options(size, mean, std)
    with evaluating(trunk):
        (features,), readable = collect_features(
            [trunk], [open_source(images)], preprocessing, torch.float32, None, batch, workers
        )
    features[~readable] = torch.nan
    return features, readable


def collect_features(
    trunks: Sequence[nn.Module],
    images: Sequence[ImageSource],
    preprocessing: Preprocessing,
    dtype: torch.dtype = torch.float16,
    rows: Sequence[int] | None = None,
    batch: int = 128,
    workers: int | None = None,
) -> tuple[list[Tensor], Tensor]:
    """Compute the features of several trunks in memory; read each image once.

    Args:
        trunks: as in :func:`compute_features`.
        images: sources of images, as in :func:`compute_features`.
        preprocessing: of the trunks' images.
        dtype: type of the features.
        rows: N rows of the joined sources; None: all.
        batch: images at a time.
        workers: processes that decode; None: from the number of cores and of images.

    Returns:
        As :func:`compute_features`, of all N images, on the CPU.
    """
    rows = range(sum(map(len, images))) if rows is None else rows
    collected: list[Tensor] = []
    readable = torch.empty(len(rows), dtype=torch.bool)
    start = 0
    for parts, valid in compute_features(trunks, images, preprocessing, rows, batch, workers):
        if start == 0:  # whole tensors from the start: joining parts would need twice the memory
            collected = [torch.empty(len(rows), part.shape[1], dtype=dtype) for part in parts]
        end = start + len(valid)
        for features, part in zip(collected, parts, strict=True):
            features[start:end] = part
        readable[start:end] = valid
        start = end
    return collected, readable


@torch.no_grad()
def compute_features(
    trunks: Sequence[nn.Module],
    images: Sequence[ImageSource],
    preprocessing: Preprocessing,
    rows: Sequence[int],
    batch: int = 128,
    workers: int | None = None,
) -> Iterator[tuple[list[Tensor], Tensor]]:
    """Compute features a batch at a time, with a progress line.

    Args:
        trunks: modules that map images to features ``(B, …)``, or to a list of such tensors, in
            evaluation mode, on one device.
        images: sources of images, which are joined in this order.
        preprocessing: size and statistics of the images, as in the trunks' training.
        rows: N rows of the joined sources.
        batch: images at a time.
        workers: processes that decode; None: from the number of cores and of images.

    Yields:
        The features ``(B, D)`` of each trunk, one after the other, on the trunks' device, and bool
        ``(B,)``: which can be read.
    """
    if workers is None:
        workers = min(usable_cores(), _MOST_WORKERS, len(rows) // _IMAGES_PER_WORKER)
        if workers == 1:  # it would be no faster than this process
            workers = 0
    crops: Dataset[tuple[Tensor, bool]] = ConcatDataset(
        [Crops(source, preprocessing.size) for source in images]
    )
    loader = DataLoader(
        Subset(crops, rows), batch, num_workers=workers, worker_init_fn=start_worker
    )
    parameter = next(trunks[0].parameters(), None)
    device = torch.device("cpu") if parameter is None else parameter.device
    with Progress("features", len(rows)) as progress:
        for pixels, valid in WatchedBatches(loader, partial(wait_for_images, images)):
            normalized = preprocessing.normalize(pixels.to(device))
            features = []
            for trunk in trunks:
                output = trunk(normalized)  # the trunks of VISSL return a list
                tensors = output if isinstance(output, (list, tuple)) else [output]
                features += [tensor.flatten(1) for tensor in tensors]
            yield features, valid
            progress.update(len(valid))
