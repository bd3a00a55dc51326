"""Read images as a network expects them: its channels, dtype, statistics and size."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from pirl_plugin.images.reading import RGB, Reading
from pirl_plugin.images.source import ImageSource
from pirl_plugin.models.network_config import UNKNOWN, NetworkConfig, network_config_of
from pirl_plugin.models.preprocessing import center_crop
from pirl_plugin.models.trunks import first_convolution
from pirl_plugin.system import loader
from pirl_plugin.system.console import Progress
from pirl_plugin.system.cores import usable_cores
from pirl_plugin.system.failures import Refused
from pirl_plugin.system.text import counted

_MOST_WORKERS = 16
_IMAGES_PER_WORKER = 256  # decoding fewer images is faster than starting a process


def config_for(
    network: nn.Module,
    source: ImageSource,
    origin: str = "argument",
    *,
    rgb: bool = False,
    size: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    nodata: float | None = None,
) -> NetworkConfig:
    """Return a network's record, with the channels, dtype and statistics of the images to read.

    For images other than RGB in uint8, the statistics are the ones that the network was trained
    with or, if there are none, the images' own. The user's values replace all others.

    Args:
        network: the network.
        source: the images; the training images if there are others.
        origin: where the user's values come from: ``argument``, or ``option``.
        rgb: whether to convert the images to RGB.
        size: image size in pixels.
        mean: per-channel mean.
        std: per-channel standard deviation.
        nodata: the value of missing pixels.

    Raises:
        Refused: the network expects different images, or statistics that only the user knows, or
            no images are readable.
    """
    config = network_config_of(network)
    images = source.type_to_read(rgb)
    convolution = first_convolution(network)
    if convolution is not None:
        config = config.with_channels(convolution[1].in_channels)
    elif not config.architecture:
        config = config.with_channels(images.channels)
    has_dtype = "dtype" in config.origins
    if images.channels != config.channels or (has_dtype and images != config.pixel_type):
        expected = config.pixel_type if has_dtype else counted(config.channels, "channel")
        remedy = "Choose a network for these images."
        is_convertible = images.channels in (1, 3, 4) and images.dtype != torch.float32
        if config.pixel_type == RGB and is_convertible:
            remedy = "Pass `rgb` to convert them."
        raise Refused(
            f"The network reads images with {expected}, but {source.path} has {images}. {remedy}"
        )
    if not config.allows_channels(source.channel_names):
        raise Refused(
            f"The network reads the channels {' '.join(config.channel_names)}, but {source.path} "
            f"has {' '.join(source.channel_names)}."
        )
    if config.nodata is None:
        config = config.with_values("images", nodata=source.nodata)
    config = replace(config.with_values(origin, nodata=nodata), rgb=rgb)
    are_given = mean is not None and std is not None
    if config.statistics == UNKNOWN and not are_given:
        raise Refused(
            "The network was trained on float views with unknown mean and standard deviation. "
            "Pass the `mean` and `std` that the views subtract and divide by."
        )
    is_known = config.pixel_type == images and (images == RGB or config.has_statistics)
    if config.pixel_type != images:
        config = config.with_values("images", dtype=images.dtype)
    if not (is_known or are_given):
        measured = source.statistics(config.reading)
        config = config.with_values("images", **measured._asdict())
    return config.with_values(origin, size=size, mean=mean, std=std)


class Crops(Dataset[tuple[Tensor, bool, int]]):
    """Center crops of a source's images.

    Args:
        source: the images.
        size: side of the crops in pixels.
        reading: how the images are read.
    """

    def __init__(self, source: ImageSource, size: int, reading: Reading) -> None:
        self._source = source
        self._size = size
        self._reading = reading

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, row: int) -> tuple[Tensor, bool, int]:
        """Return ``(C, size, size)``, whether the image is readable, and a digest."""
        image, is_valid = self._source.load(row, self._size, self._reading)
        crop = center_crop(image, self._size)
        digest = hashlib.blake2b(crop.numpy().tobytes(), digest_size=8).digest()
        return crop, is_valid, int.from_bytes(digest, "big", signed=True)


def read_crops(
    source: ImageSource,
    size: int,
    reading: Reading,
    rows: Sequence[int],
    name: str,
    batch: int = 128,
    workers: int | None = None,
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Read center crops batch by batch, with a progress line.

    Args:
        source: the images.
        size: side of the crops in pixels.
        reading: how the images are read.
        rows: N rows in the source.
        name: what they are for, in the progress line.
        batch: number of images at a time.
        workers: number of decoding processes; None: based on the numbers of cores and images.

    Yields:
        ``(B, C, size, size)``, bool ``(B,)``, whether each image is readable, and int64 ``(B,)``,
        digests.
    """
    crops = Crops(source, size, reading)
    if workers is None:
        workers = min(usable_cores(), _MOST_WORKERS, len(rows) // _IMAGES_PER_WORKER)
        if workers == 1:  # no faster than this process
            workers = 0
    with (
        closing(Progress(name, len(rows))) as progress,
        loader.reading(crops, workers, source.waiting, batch_size=batch, sampler=rows) as batches,
    ):
        for pixels, valid, digests in batches:
            yield pixels, valid, digests
            progress.update(len(valid))
