"""``pirl-plugin finetune``: train all layers and a classifier on labeled images."""

from __future__ import annotations

import argparse
import math
import os
from pathlib import Path

from pirl_plugin.system import arguments
from pirl_plugin.system.files import locked
from pirl_plugin.system.processes import own_command
from pirl_plugin.system.watcher import run_command
from pirl_plugin.vissl.host_config import require_host
from pirl_plugin.vissl.run import labeled_run

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
        *labeled_run.network_overrides(trunk),
        *length_overrides(num_labeled, request.batch),
        *labeled_run.run_overrides(request, options.out, options.overrides, trunk, images),
    ]
    status = train_command.main(overrides)
    if status != 0:
        return status
    (top1,) = final_accuracy(options.out).values()
    print(f"Fine-tuned: top-1 {top1:.2f} % of {num_tested(options.out):,} test images")
    accuracies = {"fine-tuned": top1}
    if options.scratch:
        status = _train_from_scratch(options.out / "scratch", overrides)
        if status != 0:
            return status
        (scratch_top1,) = final_accuracy(options.out / "scratch").values()
        print(f"From random weights: top-1 {scratch_top1:.2f} %; fine-tuned: {top1:.2f} %")
        accuracies["from random weights"] = scratch_top1
    with locked(options.out, "--out"):
        tuned, classifier = save_classifier(options.out, images.classes)
    if report is not None:
        drawn = drawn_images(images, options.out)
        write_report(report, request, drawn, accuracies, trunk, tuned, classifier)
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


def _train_from_scratch(folder: Path, overrides: list[str]) -> int:
    """Run the same training from random weights, and return its exit status."""
    print("Training the same network from random weights:", flush=True)
    from_random = [
        "config.MODEL.WEIGHTS_INIT.PARAMS_FILE=",
        f"config.CHECKPOINT.DIR={folder}",
    ]
    # In another process, because VISSL cannot run twice in one.
    return run_command(own_command("train", *overrides, *from_random))


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = arguments.command_parser(
        "finetune",
        "Fine-tune all layers of a checkpoint, and a linear classifier, on labeled images.",
        "--checkpoint runs/mine/checkpoint.torch --data DIR --scratch",
        arguments.LABELED_DATA,
        arguments.FEATURES,
        weights=arguments.WEIGHTS,
    )
    parser.usage = "%(prog)s [options] [KEY=VALUE …]"
    parser.set_defaults(batch=_BATCH)
    add = parser.add_argument
    out = "folder for the run (default: %(default)s)"
    add("--out", type=arguments.output_folder, default="runs/finetune", help=out)
    add("--scratch", action="store_true", help="also train the same network from random weights")
    overrides = "overrides, as in pirl-plugin train"
    add("overrides", nargs="*", metavar="KEY=VALUE", help=overrides)
    return arguments.parse_labeled(parser, argv)
