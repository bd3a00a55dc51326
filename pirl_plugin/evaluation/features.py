"""Frozen image features, computed in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pirl_plugin.evaluation.crops import config_for, read_crops
from pirl_plugin.images.opening import open_source
from pirl_plugin.images.source import ImageSource
from pirl_plugin.models.network_config import NetworkConfig
from pirl_plugin.models.preprocessing import normalize_images
from pirl_plugin.models.trunks import evaluating, pooled_features
from pirl_plugin.system.console import put
from pirl_plugin.system.failures import Refused

# Larger tensors come from the operating system at each layer, and a CPU spends more time on that
# than on the layers: with EfficientNet-Lite0 at 128 px, 26 ms per image for batches of 128 images,
# and 8 ms for 16.
_CPU_BATCH = 16
_CPU = torch.device("cpu")


class Batch(NamedTuple):
    """Features for B images, of which R are readable.

    Attributes:
        features: floating ``(R, D)``, one tensor for each of the network's outputs.
        readable: bool ``(B,)``, whether each image is readable.
        digests: int64 ``(R,)``, equal for images whose crops have equal pixels.
    """

    features: list[Tensor]
    readable: Tensor
    digests: Tensor


def extract_features(
    trunk: nn.Module,
    images: Any,
    *,
    size: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    batch: int = 128,
    workers: int | None = None,
    rgb: bool = False,
    nodata: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute a network's features for center crops of images.

    Args:
        trunk: a module that maps normalized images ``(B, C, size, size)`` to features ``(B, …)``.
            It is in evaluation mode during the call.
        images: anything that :class:`pirl_plugin.ImageDataset` accepts: a folder, a list, tars, or
            any map-style data set. Images from an ``ImageDataset`` or its ``Subset`` are read
            without views.
        size: side of the crops in pixels; None: the size used in training, if
            :func:`pirl_plugin.load_trunk` loaded the trunk or a module in it, or else 224.
        mean: per-channel mean, from 0 to 1 for uint8; None: as in training, or else ImageNet's for
            RGB in uint8, and these images' own for others.
        std: per-channel standard deviation; None as for ``mean``.
        batch: number of images at a time.
        workers: number of decoding processes; None: based on the numbers of cores and images. They
            do not import your script, so a data set that it defines is read without them.
        rgb: convert images with one or four channels, or 16 bits, to RGB in uint8.
        nodata: the value of missing pixels, besides NaN and the value that a TIFF names; None: as
            in training.

    Returns:
        float32 ``(N, D)`` on the CPU, and bool ``(N,)``, whether each image is readable. Features
        for an unreadable image are NaN; the log names the image.

    Raises:
        FileNotFoundError: the images do not exist.
        ValueError: the items contain several images, or the trunk expects a different
            number of channels.

    Example:
        >>> from pirl_plugin import WideResNet
        >>> photos = [torch.randint(256, (3, 60, 80), dtype=torch.uint8) for _ in range(4)]
        >>> features, readable = extract_features(WideResNet(10, 0.5), photos, size=32)
        >>> features.shape, features.dtype, readable.tolist()
        (torch.Size([4, 256]), torch.float32, [True, True, True, True])
    """
    source = open_source(images)
    config = config_for(trunk, source, rgb=rgb, size=size, mean=mean, std=std, nodata=nodata)
    arguments = ", ".join(f"{name}=" for name in config.defaults)
    put(
        f"features for {config}{f'; to change a default: {arguments}' if arguments else ''}\n",
        "stderr",
    )
    count = len(source)
    parameter = next(trunk.parameters(), torch.empty(0))
    with evaluating(trunk):
        batches = compute_features(
            lambda images: [pooled_features(trunk(images))],
            source,
            config,
            range(count),
            batch,
            workers,
            parameter.device,
        )
        (features,), readable, _ = collect(batches, count, torch.float32)
    if not readable.all():
        rows = torch.full((count, features.shape[1]), torch.nan)
        rows[readable] = features
        features = rows
    return features, readable


@torch.no_grad()
def compute_features(
    network: Callable[[Tensor], list[Tensor]],
    source: ImageSource,
    config: NetworkConfig,
    rows: Sequence[int],
    batch: int = 128,
    workers: int | None = None,
    device: torch.device = _CPU,
) -> Iterator[Batch]:
    """Compute features batch by batch, with a progress line.

    Args:
        network: maps normalized images to tensors ``(B, …)``; modules are in evaluation mode.
        source: the images.
        config: the images that the network expects.
        rows: N rows in the source.
        batch: number of images at a time.
        workers: number of decoding processes; None: based on the numbers of cores and images.
        device: the network's device.

    Yields:
        Readable images' features, on ``device``. An image whose features are not finite counts as
        unreadable.
    """
    crops = read_crops(source, config.size, config.reading, rows, "features", batch, workers)
    start = 0
    for pixels, valid, digests in crops:
        parts = []
        for part in pixels.to(device).split(batch if device.type == "cuda" else _CPU_BATCH):
            parts.append(network(normalize_images(part, config.mean, config.std)))
        features = [torch.cat(part).flatten(1) for part in zip(*parts, strict=True)]
        is_finite = torch.stack([part.isfinite().all(1) for part in features]).all(0).cpu()
        for number in (valid & ~is_finite).nonzero()[:, 0].tolist():
            low, high = pixels[number].float().aminmax()
            source.report_unreadable(
                rows[start + number],
                f"its features are not finite; its values range from {low:.5g} to {high:.5g}",
            )
        start += len(valid)
        readable = valid & is_finite
        yield Batch([part[readable] for part in features], readable, digests[readable])


def collect(batches: Iterable[Batch], count: int, dtype: torch.dtype = torch.float16) -> Batch:
    """Join batches in memory.

    Rows that ``dtype`` cannot hold are scaled, which keeps their cosines: deep networks with random
    weights produce features up to 1e12.

    Args:
        batches: features for all images.
        count: number of images.
        dtype: floating type of the joined features.

    Raises:
        Refused: no image could be read.
    """
    joined: list[Tensor] = []
    readable = []
    digests = []
    stop = 0
    for batch in batches:
        if not joined:  # complete tensors, because joining parts would need twice the memory
            joined = [torch.empty(count, part.shape[1], dtype=dtype) for part in batch.features]
        start = stop
        stop += len(batch.digests)
        for features, part in zip(joined, batch.features, strict=True):
            largest = part.abs().amax(dim=1, keepdim=True)
            scale = (largest / torch.finfo(dtype).max).clamp(min=1)
            features[start:stop] = part / scale
        readable.append(batch.readable)
        digests.append(batch.digests)
    if stop == 0:
        raise Refused(f"None of the {count:,} images could be read; see the warnings above.")
    return Batch([features[:stop] for features in joined], torch.cat(readable), torch.cat(digests))
