"""The overrides for a VISSL run on a checkpoint and labeled images."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pirl_plugin.system.arguments import usable_device
from pirl_plugin.system.failures import Refused
from pirl_plugin.system.files import locked
from pirl_plugin.vissl.host_config import quoted

if TYPE_CHECKING:
    from pirl_plugin.evaluation.request import Request
    from pirl_plugin.images.labeled import LabeledImages
    from pirl_plugin.models.trunks import AnyTrunk


def run_overrides(
    request: Request, folder: Path, own: Sequence[str], trunk: AnyTrunk, images: LabeledImages
) -> list[str]:
    """Return a run's overrides: weights, images, machine, the user's own, and the folder.

    VISSL finds the trunk in the checkpoint by itself, unless options select it: then the trunk is
    saved in the run's folder.
    """
    from pirl_plugin.checkpoints.write import save_trunk

    weights = request.checkpoint
    if request.trunk is not None or request.timm:
        weights = folder / "trunk.torch"
        with locked(folder, "--out"):
            save_trunk(trunk, weights)
    # Images and classes for both splits.
    overrides = []
    for split, source in (("TRAIN", images.train), ("TEST", images.test)):
        overrides += [
            f"config.DATA.{split}.DATA_PATHS=[{source.path}]",
            f"config.DATA.{split}.DATA_SOURCES=[{source.registered_name}]",
            f"config.DATA.{split}.LABEL_SOURCES=[{source.registered_name}]",
            f"config.DATA.{split}.BATCHSIZE_PER_REPLICA={request.batch}",
        ]
    keys = ["image_column", "label_column"]
    if images.held_out_of is None:  # lists of held-out images need neither
        keys += ["group_column", "pattern"]
    for key in keys:  # also for the test images
        value = getattr(request, key)
        if value is not None:
            overrides.append(f"config.DATA.TRAIN.{key.upper()}={quoted(value)}")
    if request.rgb:
        overrides.append("+config.DATA.RGB=true")
    # The classifier, the image size and normalization for the trunk, and the folder.
    config = trunk.network_config
    if config.nodata is not None:
        overrides.append(f"config.DATA.TRAIN.NODATA={config.nodata}")
    overrides += [
        f"config.MODEL.HEAD.NUM_CLASSES={len(images.classes)}",
        f"config.DATA.TRAIN.CROP_SIZE={config.size}",
        f"config.DATA.MEAN={list(config.mean)}",
        f"config.DATA.STD={list(config.std)}",
        f"config.MODEL.WEIGHTS_INIT.PARAMS_FILE={weights}",
    ]
    for override in own:
        if override.lstrip("+").startswith("config.CHECKPOINT.DIR="):
            raise Refused(f"{override}: set the folder with --out.")
    if not any("pirl/machines=" in override for override in own):
        machine = "cpu" if usable_device(request.device) == "cpu" else "1gpu"
        overrides.append(f"+config/pirl/machines={machine}")
    if request.workers is not None:
        overrides.append(f"config.DATA.NUM_DATALOADER_WORKERS={request.workers}")
    # The accuracies are read from this folder, whatever the user's overrides are.
    return [*overrides, *own, f"config.CHECKPOINT.DIR={folder}"]


def network_overrides(trunk: AnyTrunk) -> list[str]:
    """Return the overrides for fine-tuning a trunk."""
    from pirl_plugin.models.resnet import WideResNet

    network = trunk.network_config
    overrides = ["config=benchmark/pirl/finetune"]
    if isinstance(trunk, WideResNet):
        key = "config.MODEL.TRUNK.PIRL_RESNET"
        overrides += [
            "+config/pirl/finetune=resnet18",
            f"{key}.DEPTH={network.options['depth']}",
            f"{key}.WIDTH_MULTIPLIER={network.options['width']}",
            f"{key}.SMALL_STEM={network.options['small_stem']}",
            f"config.MODEL.HEAD.IN_DIM={trunk.num_features}",
        ]
        if network.channels != 3:
            overrides.append(f"+{key}.IN_CHANNELS={network.channels}")
        return overrides
    key = "config.MODEL.TRUNK.PIRL_TIMM"
    overrides += ["+config/pirl/finetune=timm", f"{key}.NAME={network.architecture}"]
    for name, value in network.options.items():
        # JSON numbers, booleans, lists and quoted strings are also valid in Hydra's grammar.
        overrides.append(f"+{key}.OPTIONS.{name}={json.dumps(value)}")
    return overrides
