"""Frozen image features, computed in batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from pirl_plugin.evaluation.crops import Crops, config_for, read_crops
from pirl_plugin.evaluation.feature_store import Batch, FeatureFile
from pirl_plugin.images.opening import open_source
from pirl_plugin.images.source import ImageSource
from pirl_plugin.models.network_config import NetworkConfig
from pirl_plugin.models.preprocessing import normalize_images
from pirl_plugin.models.trunks import (
    AnyTrunk,
    evaluating,
    layer_features,
    pooled_features,
)
from pirl_plugin.system.console import put
from pirl_plugin.system.failures import Refused
from pirl_plugin.system.watcher import resumable

# Larger tensors come from the operating system at each layer, and a CPU spends more time on that
# than on the layers: with EfficientNet-Lite0 at 128 px, 26 ms per image for batches of 128 images,
# and 8 ms for 16.
_CPU_BATCH = 16
_MOST_HALF = torch.finfo(torch.float16).max


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
    rows = range(len(source))
    features = torch.empty(0)
    readable = torch.zeros(0, dtype=torch.bool)
    with evaluating(trunk):
        for (part,), valid, _ in compute_features([trunk], source, config, rows, batch, workers):
            if len(readable) == 0:  # one tensor, because joining parts would need twice the memory
                features = torch.empty(len(rows), part.shape[1])
            start = len(readable)
            features[start : start + len(part)] = part
            readable = torch.cat([readable, valid])
    features[~readable] = torch.nan
    return features, readable


def fill(
    file: FeatureFile,
    trunk: AnyTrunk,
    layer: str,
    batch: int,
    workers: int | None,
) -> None:
    """Compute the features that a file lacks.

    Args:
        file: the file.
        trunk: the network, in evaluation mode.
        layer: layer name.
        batch: number of images at a time.
        workers: see :func:`compute_features`.

    Raises:
        Refused: no image is readable.
    """
    rows = range(len(file.readable), len(file.source))
    if rows:
        config = trunk.network_config
        with resumable():
            parts = compute_features([trunk], file.source, config, rows, batch, workers, [layer])
            for part in parts:
                file.append(part)
    if not file.readable.any():
        file.discard()
    _require_readable(file.readable)


@torch.no_grad()
def compute_features(
    trunks: Sequence[Any],
    source: ImageSource,
    config: NetworkConfig,
    rows: Sequence[int],
    batch: int = 128,
    workers: int | None = None,
    layers: Sequence[str] | None = None,
) -> Iterator[Batch]:
    """Compute features batch by batch, with a progress line.

    Args:
        trunks: modules that map images to features ``(B, …)``, in evaluation mode, on one device;
            with ``layers``, trunks of :mod:`pirl_plugin.models`.
        source: the images.
        config: the images that the trunks expect.
        rows: N rows in the source.
        batch: number of images at a time.
        workers: number of decoding processes; None: based on the numbers of cores and images.
        layers: layer names; None: the modules' outputs.

    Yields:
        Features for each layer of each trunk, with the first trunk's features first, on the trunks'
        device. An image whose features are not finite counts as unreadable.
    """
    parameter = next(trunks[0].parameters(), None)
    device = torch.device("cpu") if parameter is None else parameter.device
    crops = Crops(source, config.size, config.reading)
    start = 0
    for pixels, valid, digests in read_crops(crops, rows, "features", batch, workers):
        parts = []
        for part in pixels.to(device).split(batch if device.type == "cuda" else _CPU_BATCH):
            inputs = normalize_images(part, config.mean, config.std)
            outputs: list[Tensor] = []
            for trunk in trunks:
                if layers is None:
                    outputs.append(pooled_features(trunk(inputs)))
                else:
                    outputs += layer_features(trunk, inputs, layers)
            parts.append(outputs)
        features = [torch.cat(part).flatten(1) for part in zip(*parts, strict=True)]
        is_finite = torch.stack([part.isfinite().all(1) for part in features]).all(0).cpu()
        for number in (valid & ~is_finite).nonzero()[:, 0].tolist():
            low, high = pixels[number].float().aminmax()
            source.report_unreadable(
                rows[start + number],
                f"its features are not finite; its values range from {low:.5g} to {high:.5g}",
            )
        start += len(valid)
        yield Batch(features, valid & is_finite, digests)


def collect(batches: Iterable[Batch]) -> Batch:
    """Return the readable images' features in memory, as float16 ``(N, D)``.

    Args:
        batches: features for all images.

    Raises:
        Refused: no image could be read.
    """
    halves = []
    readable = []
    digests = []
    for batch in batches:
        halves.append([_to_half(part[batch.readable]).cpu() for part in batch.features])
        readable.append(batch.readable)
        digests.append(batch.digests[batch.readable])
    is_readable = torch.cat(readable)
    _require_readable(is_readable)
    features = [torch.cat(parts) for parts in zip(*halves, strict=True)]
    return Batch(features, is_readable, torch.cat(digests))


def _require_readable(readable: Tensor) -> None:
    """Raise ``Refused`` if none of the images could be read."""
    if not readable.any():
        raise Refused(
            f"None of the {len(readable):,} images could be read; see the warnings above."
        )


def _to_half(features: Tensor) -> Tensor:
    """Round ``(N, D)`` to float16; scale rows that would overflow, which keeps their cosines.

    Deep networks with random weights produce features up to 1e12.
    """
    largest = features.abs().amax(dim=1, keepdim=True)
    return (features / (largest / _MOST_HALF).clamp(min=1)).half()
