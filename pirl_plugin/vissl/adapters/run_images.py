"""A run's images: channels, dtype, mean and standard deviation, set when the run starts.

For RGB images in uint8, the statistics are the configuration's, by default ImageNet's. For others,
a new run computes them from a sample of the training images, and its checkpoints record them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from pirl_plugin.checkpoints.load import read_network_config
from pirl_plugin.images.source import RGB, ImageSource
from pirl_plugin.models.network_config import NetworkConfig, network_config_of
from pirl_plugin.system.console import put
from pirl_plugin.system.failures import Refused
from pirl_plugin.system.ranks import errors_on_all_ranks, gather_objects, rank
from pirl_plugin.views import IMAGENET_MEAN, IMAGENET_STD
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
        elif rank() == 0 and not config.DATA.get("RGB") and source.pixel_type != RGB:
            channels, dtype = source.pixel_type
            mean, std = source.statistics(source.pixel_type)
            images = images.with_channels(channels)
            images = images.with_values("images", mean=mean, std=std, dtype=dtype)
    return gather_objects(images)[0]


def set_images(config: AttrDict, images: NetworkConfig) -> None:
    """Set the channels, dtype and statistics in a configuration, unless they are given.

    The configuration is complete for RGB in uint8. Call this for other images.

    Args:
        config: VISSL's complete configuration, changed in place.
        images: from :func:`identify_images`.

    Raises:
        Refused: the trunk is VISSL's, which reads RGB only.
    """
    trunk = config.MODEL.TRUNK
    name = trunk.PIRL_ENSEMBLE.MEMBER if trunk.NAME == "pirl_ensemble" else trunk.NAME
    if name == "pirl_resnet":
        trunk.setdefault("PIRL_RESNET", {}).setdefault("IN_CHANNELS", images.channels)
    elif name == "pirl_timm":
        trunk.setdefault("PIRL_TIMM", {}).setdefault("OPTIONS", {}).setdefault(
            "in_chans", images.channels
        )
    elif images.channels != 3:
        raise Refused(
            f"config.MODEL.TRUNK.NAME = {name}: this trunk reads 3 channels, but the images have "
            f"{images.pixel_type}. Add +config/pirl/models=resnet18 or timm, or "
            f"+config.DATA.RGB=true to convert images of one or four channels or 16 bits."
        )
    config.DATA.DTYPE = images.dtype
    for section in _normalizations(config):
        for key, default in _DEFAULTS.items():
            if tuple(section.get(key) or default) == default:
                section[key] = list(getattr(images, key))


def show_images(config: AttrDict, dataset: PIRLDataset) -> None:
    """Print which images the network gets: channels, size, statistics, and options of the views."""
    images = run_network(nn.Identity(), config)
    put(f"images    {images}\n")
    first = dataset.transform.transforms[0].transform
    if images.pixel_type != RGB and isinstance(first, PIRLTransform):
        put(f"views     {first.views.photometric.channel_options()}, and no color options\n")


def run_network(model: nn.Module, config: Mapping[str, Any]) -> NetworkConfig:
    """Return the record of a run's network, including the images that the run trains on.

    Pre-training reads ``HOOKS.PIRL_INPUT``. Benchmarks and VISSL's own approaches use a
    ``Normalize`` transform.

    Args:
        model: VISSL's model.
        config: VISSL's complete configuration.
    """
    data = config["DATA"]
    transforms = data["TRAIN"]["TRANSFORMS"]
    section = config["HOOKS"].get("PIRL_INPUT") or {}
    # In this order: our hook, a Normalize transform, VISSL's defaults.
    mean = section.get("mean")
    std = section.get("std")
    for transform in transforms:
        if transform["name"] == "Normalize":
            mean = mean or transform.get("mean")
            std = std or transform.get("std")
    return network_config_of(model).with_values(
        "run",
        size=size_of_transforms(transforms),
        mean=mean or data.get("MEAN") or None,
        std=std or data.get("STD") or None,
        dtype=data.get("DTYPE") or "uint8",
    )


def _normalizations(config: AttrDict) -> Iterator[dict[str, Any]]:
    """Yield the sections with a mean and a standard deviation that the run reads."""
    if "PIRL_INPUT" in config.HOOKS:
        yield config.HOOKS.PIRL_INPUT
    for split in ("TRAIN", "TEST"):
        for transform in config.DATA[split].TRANSFORMS:
            if transform["name"] == "Normalize":
                yield transform
