"""``pirl-plugin finetune``: train all layers and a classifier on labeled images."""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pirl_plugin.system import arguments
from pirl_plugin.system.failures import Refused
from pirl_plugin.system.files import locked
from pirl_plugin.vissl.host_config import quoted, require_host

if TYPE_CHECKING:
    from pirl_plugin.evaluation.request import Request
    from pirl_plugin.images.labeled import LabeledImages
    from pirl_plugin.models.trunks import AnyTrunk

_EPOCHS = 30
_STEPS = 1000  # at least
_BATCH = 32  # images per step, as in the single-process configs
_UNCHECKED = "Not checked: whether test images are also training images (see pirl-plugin knn)."


def main(argv: list[str]) -> int:
    """Fine-tune in this process, print the top-1 accuracy, and save the classifier."""
    options = _parse(argv)
    require_host()
    _select_gpu(options)
    from pirl_plugin.evaluation.finished_runs import final_accuracy, num_tested
    from pirl_plugin.evaluation.page import open_report
    from pirl_plugin.evaluation.request import Request
    from pirl_plugin.images.classes import NO_CLASS
    from pirl_plugin.vissl.run import train_command
    from pirl_plugin.vissl.run.finetune_report import drawn_images, save_classifier, write_report

    request = Request.of_options(options)
    # A run may continue with a copy of its images elsewhere; it compares them itself.
    with locked(options.out, "--out"):
        trunk, images = request.open_labeled("finetune", options.out, ("data", "train", "val"))
    report = open_report(options.report, options.show, images.train, request.weights, trunk)
    print(_UNCHECKED, flush=True)
    num_labeled = int((images.train_labels != NO_CLASS).sum())
    overrides = [
        *network_overrides(trunk),
        *length_overrides(num_labeled, request.batch),
        *run_overrides(request, options.out, options.overrides, trunk, images),
    ]
    train_command.main(overrides)
    (top1,) = final_accuracy(options.out).values()
    print(f"Fine-tuned: top-1 {top1:.2f} % of {num_tested(options.out):,} test images")
    with locked(options.out, "--out"):
        tuned, classifier = save_classifier(options.out, images.classes)
    if report is not None:
        drawn = drawn_images(images, options.out)
        write_report(report, request, drawn, top1, tuned, classifier)
    return 0


def _select_gpu(options: argparse.Namespace) -> None:
    """Hide all GPUs but the chosen one, before torch counts them: VISSL uses the first."""
    _, _, number = options.device.partition(":")
    if number:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        gpus = visible.split(",")[int(number) :][:1] if visible else [number]
        os.environ["CUDA_VISIBLE_DEVICES"] = "".join(gpus)
        options.device = "cuda"


def length_overrides(num_images: int, batch: int = _BATCH) -> list[str]:
    """Return the overrides for 30 epochs, or more to reach 1,000 steps.

    With 307 labels, accuracy was 45.8 % after 100 epochs, and 39.0 % after 30.
    """
    steps_per_epoch = max(1, num_images // batch)
    epochs = max(_EPOCHS, math.ceil(_STEPS / steps_per_epoch))
    return [
        f"config.OPTIMIZER.num_epochs={epochs}",
        f"config.TEST_EVERY_NUM_EPOCH={max(5, epochs // 6)}",
    ]


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
        machine = "cpu" if arguments.usable_device(request.device) == "cpu" else "1gpu"
        overrides.append(f"+config/pirl/machines={machine}")
    if request.workers is not None:
        overrides.append(f"config.DATA.NUM_DATALOADER_WORKERS={request.workers}")
    # The accuracies are read from this folder, whatever the user's overrides are.
    return [*overrides, *own, f"config.CHECKPOINT.DIR={folder}"]


def network_overrides(trunk: AnyTrunk) -> list[str]:
    """Return the overrides for fine-tuning a trunk."""
    network = trunk.network_config
    values: dict[str, Any] = {}
    if network.architecture == "pirl_resnet":
        overlay = "resnet18"
        section = "PIRL_RESNET"
        for name, value in network.options.items():
            values["WIDTH_MULTIPLIER" if name == "width" else name.upper()] = value
    else:
        overlay = "timm"
        section = "PIRL_TIMM"
        values["NAME"] = network.architecture
        for name, value in network.options.items():
            values[f"OPTIONS.{name}"] = value
    return [
        "config=benchmark/pirl/finetune",
        f"+config/pirl/finetune={overlay}",
        f"config.MODEL.HEAD.IN_DIM={trunk.num_features}",
        # JSON numbers, booleans, lists and quoted strings are also valid in Hydra's grammar.
        *(f"++config.MODEL.TRUNK.{section}.{key}={json.dumps(values[key])}" for key in values),
    ]


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = arguments.command_parser(
        "finetune",
        "Fine-tune all layers of a checkpoint, and a linear classifier, on labeled images.",
        "--checkpoint runs/mine/checkpoint.torch --data DIR",
        arguments.LABELED_DATA,
        arguments.FEATURES,
        weights=arguments.WEIGHTS,
    )
    parser.usage = "%(prog)s [options] [KEY=VALUE …]"
    parser.set_defaults(batch=_BATCH)
    add = parser.add_argument
    out = "folder for the run (default: %(default)s)"
    add("--out", type=arguments.output_folder, default="runs/finetune", help=out)
    overrides = "overrides, as in pirl-plugin train"
    add("overrides", nargs="*", metavar="KEY=VALUE", help=overrides)
    return arguments.parse_labeled(parser, argv)
