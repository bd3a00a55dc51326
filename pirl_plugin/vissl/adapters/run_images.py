"""A run's images: channels, dtype, mean and standard deviation, set when the run starts.

For RGB images in uint8, the statistics are the configuration's, by default ImageNet's. For others,
a new run measures them on a sample of the training images. If the initial weights record statistics
for such images, the run uses those. Its checkpoints record them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pirl_plugin.checkpoints.network_record import read_network_config
from pirl_plugin.images.reading import RGB, Reading
from pirl_plugin.images.source import ImageSource
from pirl_plugin.models.network_config import NetworkConfig
from pirl_plugin.system.console import put
from pirl_plugin.system.failures import Refused
from pirl_plugin.system.ranks import errors_on_all_ranks, gather_objects, rank
from pirl_plugin.views import IMAGENET_MEAN, IMAGENET_STD
from pirl_plugin.views.base import Views
from pirl_plugin.vissl.adapters.images import PIRLTransform
from pirl_plugin.vissl.sections import size_of_transforms

if TYPE_CHECKING:
    from vissl.config import AttrDict

    from pirl_plugin.vissl.adapters.dataset import PIRLDataset

_DEFAULTS = {"mean": IMAGENET_MEAN, "std": IMAGENET_STD}


def identify_images(config: AttrDict, source: ImageSource, checkpoint: str | None) -> NetworkConfig:
    """Return a run's channels, dtype and statistics, the same on all ranks. Collective.

    Args:
        config: VISSL's complete configuration.
        source: the training images or, in a test, the test images.
        checkpoint: the checkpoint that the run resumes from, which records them; None: a new run.

    Raises:
        Refused: no image is readable; raised on all ranks.
    """
    images = NetworkConfig()
    with errors_on_all_ranks():
        if rank() == 0 and checkpoint is not None:
            images = read_network_config(Path(checkpoint))
        elif rank() == 0:
            images = _images_of_new_run(config, source)
    return gather_objects(images)[0]


def _images_of_new_run(config: AttrDict, source: ImageSource) -> NetworkConfig:
    rgb = bool(config.DATA.get("RGB"))
    pixel_type = source.type_to_read(rgb)
    file = config.MODEL.WEIGHTS_INIT.PARAMS_FILE
    recorded = read_network_config(Path(file)) if os.path.isfile(file) else NetworkConfig()
    fits = recorded.pixel_type == pixel_type and recorded.allows_channels(source.channel_names)
    if fits and recorded.has_statistics:
        put(f"weights   {file} sets mean and std\n")
        return recorded
    images = NetworkConfig().with_channels(pixel_type.channels)
    if pixel_type == RGB:
        return images
    reading = Reading(pixel_type, rgb, config.DATA.TRAIN.get("NODATA"))
    measured = source.statistics(reading)._asdict()
    measured["channel_names"] = source.channel_names
    return images.with_values("images", dtype=pixel_type.dtype, **measured)


def set_images(config: AttrDict, images: NetworkConfig) -> NetworkConfig:
    """Set the channels and statistics in a configuration, unless they are given.

    Without statistics, the configuration stays as it is.

    Args:
        config: VISSL's complete configuration, changed in place.
        images: from :func:`identify_images`.

    Returns:
        The record of the images that the run's network gets.

    Raises:
        Refused: the trunk is VISSL's, which reads RGB only.
    """
    if images.has_statistics:
        if images.channels != 3:
            _set_channels(config, images)
        for section in _normalizations(config):
            for key, default in _DEFAULTS.items():
                if tuple(section.get(key) or default) == default:
                    section[key] = list(getattr(images, key))
    data = config["DATA"]
    # Pre-training reads HOOKS.PIRL_INPUT; benchmarks and VISSL's approaches, a Normalize transform.
    values = {"mean": data.get("MEAN"), "std": data.get("STD")}
    for section in reversed(list(_normalizations(config))):
        values |= {key: section[key] for key in values if section.get(key)}
    if tuple(values["mean"] or ()) == images.mean:
        values |= {"low": images.low, "high": images.high}
    return NetworkConfig(rgb=bool(data.get("RGB"))).with_values(
        "run",
        size=size_of_transforms(data["TRAIN"]["TRANSFORMS"]),
        channel_names=images.channel_names,
        dtype=images.dtype,
        nodata=data["TRAIN"].get("NODATA"),
        **values,
    )


def _set_channels(config: AttrDict, images: NetworkConfig) -> None:
    trunk = config.MODEL.TRUNK
    name = trunk.PIRL_ENSEMBLE.MEMBER if trunk.NAME == "pirl_ensemble" else trunk.NAME
    if name == "pirl_resnet":
        trunk.setdefault("PIRL_RESNET", {}).setdefault("IN_CHANNELS", images.channels)
    elif name == "pirl_timm":
        trunk.setdefault("PIRL_TIMM", {}).setdefault("OPTIONS", {}).setdefault(
            "in_chans", images.channels
        )
    else:
        raise Refused(
            f"config.MODEL.TRUNK.NAME = {name}: this trunk reads 3 channels, but the images have "
            f"{images.pixel_type}. Add +config/pirl/models=resnet18 or timm, or "
            f"+config.DATA.RGB=true to convert images of one or four channels or 16 bits."
        )


def show_images(images: NetworkConfig, dataset: PIRLDataset) -> None:
    """Print which images the network gets: channels, size, statistics, and options of the views."""
    put(f"images    {images}\n")
    first = dataset.transform.transforms[0].transform
    has_options = isinstance(first, PIRLTransform) and isinstance(first.views, Views)
    if images.pixel_type != RGB and has_options:
        put(f"views     {first.views.photometric.channel_options()}, and no color options\n")


def _normalizations(config: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the sections with a mean and a standard deviation that the run reads, first ours."""
    section = config["HOOKS"].get("PIRL_INPUT")
    if section is not None:
        yield section
    for split in ("TRAIN", "TEST"):
        for transform in config["DATA"][split]["TRANSFORMS"]:
            if transform["name"] == "Normalize":
                yield transform
