"""The network that ``knn`` and ``embed`` measure, and what identifies its features."""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Mapping
from typing import Any

import torch

from pirl_plugin.checkpoints.load import load_trunk
from pirl_plugin.images.sources import ImageSource
from pirl_plugin.models.trunks import AnyTrunk, describe_network
from pirl_plugin.system.arguments import trunk_options


def load_network(options: argparse.Namespace) -> AnyTrunk:
    """Load the trunk of a command's checkpoint on its device, and say which network it is.

    Its preprocessing is the user's, or else the checkpoint's.
    """
    trunk = load_trunk(options.checkpoint, **trunk_options(options))
    trunk.preprocessing = trunk.preprocessing.with_options(options.size, options.mean, options.std)
    print(f"network: {describe_network(trunk)}", flush=True)
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    return trunk.to(device)


def describe_features(
    options: argparse.Namespace, trunk: AnyTrunk, splits: Mapping[str, ImageSource]
) -> dict[str, Any]:
    """Return JSON that identifies the features of images by a checkpoint's trunk."""
    file = options.checkpoint.stat()
    digest = hashlib.sha256()
    for split, source in splits.items():
        digest.update(f"{split}\0".encode())
        for row in range(len(source)):
            digest.update(source.path_of(row).encode(errors="surrogateescape") + b"\0")
    return {
        "checkpoint": [str(options.checkpoint.resolve()), file.st_size, file.st_mtime_ns],
        "network": [options.trunk, options.timm, dict(options.timm_option)],
        "size": trunk.preprocessing.size,
        "mean and std": [*trunk.preprocessing.mean, *trunk.preprocessing.std],
        "list of images": digest.hexdigest(),
    }
