"""Load the network that a command's options name."""

from __future__ import annotations

import argparse
from typing import Any

from pirl_plugin.checkpoints.load import load_trunk
from pirl_plugin.evaluation.features import config_for
from pirl_plugin.images.opening import ImageSource
from pirl_plugin.images.source import content_stamp
from pirl_plugin.models.trunks import AnyTrunk
from pirl_plugin.system.arguments import weights_name


def load_network(options: argparse.Namespace, source: ImageSource, device: str = "cpu") -> AnyTrunk:
    """Load the trunk that a command's options name; print the network and the images it expects.

    A network from ``--timm`` gets the images' number of channels; timm adapts the first layer.

    Args:
        options: options from ``arguments.WEIGHTS``, ``NETWORK`` and ``IMAGES``.
        source: the images; the training images if there are others.
        device: cpu, or cuda:N.
    """
    timm_options = dict(options.timm_option)
    channels = 3 if options.rgb else source.pixel_type().channels
    if options.timm is not None and channels != 3:
        timm_options.setdefault("in_chans", channels)
    trunk = load_trunk(
        options.checkpoint,
        prefix=options.trunk,
        timm=options.timm,
        timm_options=timm_options,
    )
    config = config_for(trunk, source, options.rgb, "--rgb").with_values(
        "option", size=options.size, mean=options.mean, std=options.std
    )
    trunk.network_config = config
    print(f"network: {config.name}, {trunk.num_features:,} features")
    print(f"input: {config}", flush=True)
    if config.defaults:
        flags = ", ".join(f"--{name}" for name in config.defaults)
        print(f"The weights record no image settings. To change a default: {flags}", flush=True)
    return trunk.to(device)


def identify_features(options: argparse.Namespace, trunk: AnyTrunk, layer: str) -> dict[str, Any]:
    """Return JSON that identifies a network's features for any images."""
    checkpoint = [weights_name(options)]
    if options.checkpoint is not None:
        checkpoint.append(content_stamp(options.checkpoint))
    config = trunk.network_config
    return {
        "checkpoint": checkpoint,
        "network": {"trunk": options.trunk, "timm": [options.timm, *options.timm_option]},
        "layer": layer,
        "image size": config.size,
        "mean and std": [*config.mean, *config.std],
    }
