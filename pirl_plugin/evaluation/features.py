"""Frozen features of images: read, crop at the centre, and compute, a batch at a time."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms.v2 import functional as tv

from pirl_plugin.checkpoints.load import load_trunk
from pirl_plugin.images.classes import NO_CLASS
from pirl_plugin.images.joined import JoinedSource
from pirl_plugin.images.labelled import LabelledImages
from pirl_plugin.images.opening import ImageSource, open_source
from pirl_plugin.models.network_config import NetworkConfig
from pirl_plugin.models.preprocessing import normalize_images
from pirl_plugin.models.trunks import (
    AnyTrunk,
    evaluating,
    layer_features,
    network_config_of,
)
from pirl_plugin.system.console import Progress, put
from pirl_plugin.system.failures import Refused
from pirl_plugin.system.files import check_space, naming_failures
from pirl_plugin.system.loader import reading, start_worker
from pirl_plugin.system.processes import usable_cores
from pirl_plugin.system.watcher import TIMEOUT_MINUTES, Wait

_MOST_WORKERS = 16
_IMAGES_PER_WORKER = 256  # decoding fewer images is faster than starting a process
# Larger tensors come from the operating system at each layer, and a CPU spends more time on that
# than on the layers: 26 ms an image of 128 px with EfficientNet-Lite0 and 128 images, 8 ms with 16.
_CPU_BATCH = 16
_LONGEST_STRIP = 100  # times its shorter side, before it is resized
_MOST_HALF = torch.finfo(torch.float16).max


def centre_crop(image: Tensor, size: int) -> Tensor:
    """Resize the shorter side of an image to 8/7 of ``size`` (256 for 224), and crop the middle.

    Args:
        image: uint8 ``(3, H, W)``.
        size: side of the crop, pixels.

    Returns:
        uint8 ``(3, size, size)``.
    """
    height, width = image.shape[1:]
    longest = _LONGEST_STRIP * min(height, width)
    if max(height, width) > longest:  # resized whole, 1 × 40,000 px would take gigabytes
        image = tv.center_crop(image, [min(height, longest), min(width, longest)])
    return tv.center_crop(tv.resize(image, [round(size * 8 / 7)], antialias=True), [size, size])


class Crops(Dataset[tuple[Tensor, bool]]):
    """Centre crops of the images of sources, which are joined.

    Args:
        sources: the sources of images.
        size: side of the crops, pixels.
    """

    def __init__(self, sources: Sequence[ImageSource], size: int) -> None:
        self._images = JoinedSource("the images", sources)
        self._size = size

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, row: int) -> tuple[Tensor, bool]:
        """Return uint8 ``(3, size, size)`` and whether the image could be read."""
        image, is_valid = self._images.load(row, self._size)
        return centre_crop(image, self._size), is_valid


def load_network(options: argparse.Namespace, device: str = "cpu") -> AnyTrunk:
    """Load the trunk that a command's options name; print the network and the images it expects.

    Args:
        options: of ``arguments.WEIGHTS``, ``NETWORK`` and ``IMAGES``.
        device: cpu, or cuda:N.
    """
    trunk = load_trunk(
        options.checkpoint,
        prefix=options.trunk,
        timm=options.timm,
        timm_options=dict(options.timm_option),
        trust_pickle=options.trust_pickle,
    )
    config = trunk.network_config.with_values(
        "option", size=options.size, mean=options.mean, std=options.std
    )
    trunk.network_config = config
    print(f"network: {config.title}, {trunk.num_features:,} features")
    print(f"input: {config}", flush=True)
    if config.defaults:
        given = ", ".join(f"--{name}" for name in config.defaults)
        print(f"The weights do not record their images. To change a default: {given}", flush=True)
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
            map-style data set. Those of an ``ImageDataset`` or its ``Subset`` are read without
            views.
        size: side of the crops, pixels; None: the size in the trunk's training, if
            :func:`pirl_plugin.load_trunk` loaded it or a module in it, or else 224.
        mean: mean of each channel, 0 to 1; None: as in the training, or else ImageNet's.
        std: standard deviation of each channel; None as for ``mean``.
        batch: images at a time.
        workers: processes that decode; None: from the number of cores and of images.

    Returns:
        float32 ``(N, D)`` on the CPU, and bool ``(N,)``, whether each image could be read. The
        features of an unreadable image are NaN; the log names it.

    Raises:
        FileNotFoundError: there are no such images.
        ValueError: the items are views, or have several images.

    Example:
        >>> from pirl_plugin import WideResNet
        >>> photos = [torch.randint(256, (3, 60, 80), dtype=torch.uint8) for _ in range(4)]
        >>> features, readable = extract_features(WideResNet(10, 0.5), photos, size=32)
        >>> features.shape, features.dtype, readable.tolist()
        (torch.Size([4, 256]), torch.float32, [True, True, True, True])
    """
    config = network_config_of(trunk).with_values("argument", size=size, mean=mean, std=std)
    given = ", ".join(f"{name}=" for name in config.defaults)
    put(f"features for {config}{f'; to change a default: {given}' if given else ''}\n", "stderr")
    source = open_source(images)
    rows = range(len(source))
    features = torch.empty(0)
    readable = torch.empty(len(rows), dtype=torch.bool)
    start = 0
    with evaluating(trunk):
        for (part,), valid in compute_features([trunk], [source], config, rows, batch, workers):
            if start == 0:  # a whole tensor: joining parts would need twice the memory
                features = torch.empty(len(rows), part.shape[1])
            end = start + len(valid)
            features[start:end] = part
            readable[start:end] = valid
            start = end
    features[~readable] = torch.nan
    return features, readable


def store_features(
    batches: Iterable[tuple[list[Tensor], Tensor]], num_images: int, folder: Path | None = None
) -> tuple[list[Tensor], Tensor]:
    """Store features in files without names, so that a killed command leaves nothing.

    Args:
        batches: from :func:`compute_features`.
        num_images: in all batches.
        folder: where the files are; None: the folder of temporary files.

    Returns:
        The features of each trunk, one after the other, float16 ``(N, D)``, of the N images that
        can be read: see :func:`to_half`. They are mapped from files, and may be larger than the
        memory. And bool ``(images,)``: which can be read.

    Raises:
        Refused: no image can be read.
    """
    remedy = "Choose an output folder on another disk."
    if folder is None:
        folder = Path(tempfile.gettempdir())
        remedy = "Set the environment variable TMPDIR to a folder on another disk."
    files: list[Any] = []
    readable_parts = [torch.zeros(0, dtype=torch.bool)]
    for parts, valid in batches:
        if not files:
            bytes_per_image = 2 * sum(part.shape[1] for part in parts)
            check_space(folder, num_images * bytes_per_image, remedy)
        with naming_failures(folder):
            for number, part in enumerate(parts):
                if number == len(files):
                    files.append(tempfile.TemporaryFile(dir=folder, buffering=0))
                files[number].write(to_half(part[valid]).cpu().numpy().tobytes())
        readable_parts.append(valid)
    readable = torch.cat(readable_parts)
    num_readable = int(readable.sum())
    if num_readable == 0:
        raise Refused(
            f"{len(readable)} images: expected images that can be read, found none; the warnings "
            f"above name the reasons"
        )
    features = []
    for file in files:
        values = np.memmap(file, np.float16, "r+")
        features.append(torch.from_numpy(values.reshape(num_readable, -1)))
    return features, readable


@dataclass(frozen=True)
class LabelledFeatures:
    """Features of the N training and M test images that have a class and can be read.

    Attributes:
        features: of each layer of each network, those of the first network first: float16
            ``(N, D)`` and ``(M, D)``. They may be larger than the memory.
        train_rows: int64 ``(N,)``, rows of the training images' source.
        test_rows: int64 ``(M,)``, rows of the test images' source.
        train_labels: int64 ``(N,)``.
        test_labels: int64 ``(M,)``.
        num_unreadable: number of images that have a class, and cannot be read.
    """

    features: list[tuple[Tensor, Tensor]]
    train_rows: Tensor
    test_rows: Tensor
    train_labels: Tensor
    test_labels: Tensor
    num_unreadable: int

    @classmethod
    def of_rows(
        cls, images: LabelledImages, rows: Tensor, is_readable: Tensor, features: list[Tensor]
    ) -> LabelledFeatures:
        """Return the features of images with their labels.

        Args:
            images: training and test images.
            rows: int64 ``(R,)``, sorted rows of images with a class, the training images first.
            is_readable: bool ``(R,)``, whether each of them can be read: N + M of them.
            features: of each layer of each network, ``(N + M, D)``.

        Raises:
            Refused: there are no training images, only those of one class, or no test images.
        """
        num_asked = len(rows)
        rows = rows[is_readable]
        num_train = int((rows < len(images.train)).sum())
        if num_train in (0, len(rows)):
            raise Refused(
                f"{images.train.path} and {images.test.path}: expected images that can be read, "
                f"and have a class, in both, found {num_train} and {len(rows) - num_train}"
            )
        train_rows, test_rows = rows.tensor_split([num_train])
        train_labels, test_labels = torch.from_numpy(images.labels)[rows].tensor_split([num_train])
        if len(train_labels.unique()) == 1:
            raise Refused(
                f"{images.train.path}: expected images of two or more classes that can be read, "
                f"found only those of {images.classes[int(train_labels[0])]}; repair the others"
            )
        pairs = []
        for part in features:
            train, test = part.tensor_split([num_train])
            pairs.append((train, test))
        return cls(
            features=pairs,
            train_rows=train_rows,
            test_rows=test_rows - len(images.train),
            train_labels=train_labels,
            test_labels=test_labels,
            num_unreadable=num_asked - len(rows),
        )


def labelled_features(
    networks: Sequence[AnyTrunk],
    layers: Sequence[str],
    images: LabelledImages,
    rows: Sequence[int] | None = None,
    batch: int = 128,
    workers: int | None = None,
    folder: Path | None = None,
) -> LabelledFeatures:
    """Compute the features of layers; read each image once.

    Args:
        networks: networks of the same kind, in evaluation mode, on one device.
        layers: names of layers.
        images: training and test images.
        rows: sorted rows of images with a class; those of test images follow those of all training
            images. None: all that have a class.
        batch: images at a time.
        workers: processes that decode; None: from the number of cores and of images.
        folder: where the features are stored; None: the folder of temporary files.

    Raises:
        Refused: no training image, or no test image, can be read and has a class; or the training
            images have only one class.
    """
    if rows is None:
        rows = np.flatnonzero(images.labels != NO_CLASS).tolist()
    sources = [images.train, images.test]
    config = networks[0].network_config
    batches = compute_features(networks, sources, config, rows, batch, workers, layers)
    features, readable = store_features(batches, len(rows), folder)
    return LabelledFeatures.of_rows(images, torch.tensor(rows), readable, features)


def to_half(features: Tensor) -> Tensor:
    """Round ``(N, D)`` to float16; rows that would overflow are scaled, so their cosines stay.

    Deep networks with random weights have features up to 1e12.
    """
    largest = features.abs().amax(dim=1, keepdim=True)
    return (features / (largest / _MOST_HALF).clamp(min=1)).half()


@torch.no_grad()
def compute_features(
    trunks: Sequence[Any],
    images: Sequence[ImageSource],
    config: NetworkConfig,
    rows: Sequence[int],
    batch: int = 128,
    workers: int | None = None,
    layers: Sequence[str] | None = None,
) -> Iterator[tuple[list[Tensor], Tensor]]:
    """Compute features a batch at a time, with a progress line.

    Args:
        trunks: modules that map images to features ``(B, …)``, or to a list of such tensors, in
            evaluation mode, on one device; with ``layers``, trunks of :mod:`pirl_plugin.models`.
        images: sources of images, which are joined in this order.
        config: the images that the trunks expect.
        rows: N rows of the joined sources.
        batch: images at a time.
        workers: processes that decode; None: from the number of cores and of images.
        layers: names of layers; None: what the modules return.

    Yields:
        The features ``(B, D)`` of each layer of each trunk, those of the first trunk first, on the
        trunks' device, and bool ``(B,)``: which can be read.
    """
    if workers is None:
        workers = min(usable_cores(), _MOST_WORKERS, len(rows) // _IMAGES_PER_WORKER)
        if workers == 1:  # it would be no faster than this process
            workers = 0
    crops = Crops(images, config.size)
    loader = DataLoader(
        crops, batch, sampler=rows, num_workers=workers, worker_init_fn=start_worker
    )
    parameter = next(trunks[0].parameters(), None)
    device = torch.device("cpu") if parameter is None else parameter.device
    wait = Wait(images, TIMEOUT_MINUTES)
    with closing(Progress("features", len(rows))) as progress, reading(loader, wait) as batches:
        for pixels, valid in batches:
            parts = []
            for part in pixels.to(device).split(batch if device.type == "cuda" else _CPU_BATCH):
                inputs = normalize_images(part, config.mean, config.std)
                outputs: list[Tensor] = []
                for trunk in trunks:
                    if layers is not None:
                        outputs += layer_features(trunk, inputs, layers)
                        continue
                    output = trunk(inputs)  # the trunks of VISSL return a list
                    outputs += output if isinstance(output, (list, tuple)) else [output]
                parts.append(outputs)
            features = []
            for parts_of_layer in zip(*parts, strict=True):
                features.append(torch.cat(parts_of_layer).flatten(1))
            yield features, valid
            progress.update(len(valid))
