"""``pirl-plugin finetune``: train all layers and a classifier on labeled images."""

from __future__ import annotations

import argparse
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pirl_plugin.system import arguments
from pirl_plugin.system.failures import check
from pirl_plugin.system.files import locked
from pirl_plugin.system.processes import own_command
from pirl_plugin.system.text import printable
from pirl_plugin.system.watcher import run_command
from pirl_plugin.vissl.host_config import require_host
from pirl_plugin.vissl.run import labeled_run

if TYPE_CHECKING:
    from pirl_plugin.evaluation.pictures import Display, PageImages
    from pirl_plugin.evaluation.report import Report
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
    from pirl_plugin.evaluation.report import open_report
    from pirl_plugin.evaluation.request import Request
    from pirl_plugin.vissl.run import train_command

    request = Request.of_options(options)
    # A run may continue with a copy of its images elsewhere; it compares them itself.
    with locked(options.out, "--out"):
        trunk, images = request.open_labeled("finetune", options.out, ("data", "train", "val"))
    report = open_report(options.report, options.show, images.train, request.weights, trunk)
    print(_UNCHECKED, flush=True)
    num_images, limit = limit_images(images, options.fraction)
    overrides = [
        *labeled_run.network_overrides(trunk),
        *limit,
        *length_overrides(num_images, request.batch),
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
        print(write_classifier(options.out, images.classes))
    if report is not None:
        _write_page(report, request, options.out, trunk, images, accuracies, num_images)
    return 0


def _select_gpu(options: argparse.Namespace) -> None:
    """Hide all GPUs but the chosen one, before torch counts them: VISSL uses the first."""
    _, _, number = options.device.partition(":")
    if number:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        gpus = visible.split(",")[int(number) :][:1] if visible else [number]
        os.environ["CUDA_VISIBLE_DEVICES"] = "".join(gpus)
        options.device = "cuda"


def _write_page(
    report: Report,
    request: Request,
    folder: Path,
    trunk: AnyTrunk,
    images: LabeledImages,
    accuracies: dict[str, float],
    num_images: int,
) -> None:
    """Compare the run with a logistic regression on frozen features, and write the page."""
    from pirl_plugin.evaluation.finished_runs import num_tested
    from pirl_plugin.evaluation.logistic import fit_layers
    from pirl_plugin.evaluation.page import Accuracy

    tested = classify_test_images(request, folder, trunk, images, report.display)
    # The regressions are fitted to the images that the run trained on.
    drawn = drawn_images(images, folder)
    frozen = fit_layers(trunk, drawn, trunk.layers, workers=request.workers)
    frozen_top1 = frozen.test_top1(frozen.chosen)
    print(f"Frozen, a logistic regression on {frozen.chosen}: top-1 {frozen_top1:.2f} %")
    accuracies = {**accuracies, f"frozen, {frozen.chosen}": frozen_top1}
    count = num_tested(folder)
    bars = [Accuracy(name, top1, count) for name, top1 in accuracies.items()]
    report.write(
        title="Fine-tuning, and a classifier on frozen features",
        images=tested,
        labeled=images,
        accuracy=bars[0],
        charts={"": bars},
        chance=frozen.chance_top1,
        num_train=num_images,
        confusion=tested.confusion,
        mistakes_text="Of the fine-tuned network.",
    )


def limit_images(images: LabeledImages, fraction: float | None) -> tuple[int, list[str]]:
    """Return the number of training images, and overrides that limit training to a fraction.

    The selection is the same in each call. It is balanced over classes where all classes have
    enough images, and otherwise ignores classes.
    """
    import numpy as np

    from pirl_plugin.images.classes import NO_CLASS

    labels = images.train_labels
    _, counts = np.unique(labels[labels != NO_CLASS], return_counts=True)
    num_labeled = int(counts.sum())
    if fraction is None:
        return num_labeled, []
    check("--fraction", fraction, 0 < fraction <= 1, "a fraction of the images, such as 0.1")
    # VISSL refuses fewer images than classes, and draws without replacement.
    limit = max(round(fraction * num_labeled), len(counts))
    per_class = math.ceil(limit / len(counts))
    balanced = bool(counts.min() >= per_class)
    drawn = "equally many from each class" if balanced else "drawn at random"
    print(f"training on {limit:,} of {num_labeled:,} images, {drawn}", flush=True)
    return limit, [
        f"config.DATA.TRAIN.DATA_LIMIT={limit}",
        f"config.DATA.TRAIN.DATA_LIMIT_SAMPLING.IS_BALANCED={balanced}",
    ]


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


def drawn_images(images: LabeledImages, folder: Path) -> LabeledImages:
    """Return a run's images; training images that the run did not draw are marked unlabeled.

    Args:
        images: all training and test images.
        folder: folder of the finished run; its configuration has the number of images and the seed.
    """
    import numpy as np

    from pirl_plugin.checkpoints.read import RUN_CONFIG, read_config
    from pirl_plugin.images.classes import NO_CLASS
    from pirl_plugin.vissl.adapters.dataset import draw_rows

    section = read_config(folder / RUN_CONFIG)["DATA"]["TRAIN"]
    if section["DATA_LIMIT"] < 0:
        return images
    drawn = draw_rows(images.train_labels, section["DATA_LIMIT"], section["DATA_LIMIT_SAMPLING"])
    labels = images.labels.copy()
    labels[np.delete(np.arange(len(images.train)), drawn)] = NO_CLASS  # training images are first
    return replace(images, labels=labels)


def _train_from_scratch(folder: Path, overrides: list[str]) -> int:
    """Run the same training from random weights, and return its exit status."""
    print("Training the same network from random weights:", flush=True)
    from_random = [
        "config.MODEL.WEIGHTS_INIT.PARAMS_FILE=",
        f"config.CHECKPOINT.DIR={folder}",
    ]
    # In another process, because VISSL cannot run twice in one.
    return run_command(own_command("train", *overrides, *from_random))


def write_classifier(folder: Path, classes: list[str]) -> str:
    """Save a finished run's network with its classifier, for ``embed`` and ``export``.

    Args:
        folder: the run's folder.
        classes: name for each output.

    Returns:
        A message about the file.
    """
    from pirl_plugin.checkpoints.classifier import CLASSIFIER_FILE, Classifier
    from pirl_plugin.checkpoints.load import load_trunk
    from pirl_plugin.checkpoints.read import final_checkpoint, read_checkpoint
    from pirl_plugin.checkpoints.write import save_trunk
    from pirl_plugin.models.resnet import LAST

    checkpoint = final_checkpoint(folder)
    assert checkpoint is not None  # the run is finished
    content: Any = read_checkpoint(checkpoint)
    head = content["classy_state_dict"]["base_model"]["model"]["heads"]
    names = list(map(printable, classes))
    classifier = Classifier(head["0.clf.0.weight"], head["0.clf.0.bias"], names, LAST)
    file = folder / CLASSIFIER_FILE
    save_trunk(load_trunk(checkpoint), file, classifier)
    return f"{file}: the network and its classifier, for pirl-plugin embed and export"


def classify_test_images(
    request: Request,
    folder: Path,
    trunk: AnyTrunk,
    images: LabeledImages,
    display: Display,
) -> PageImages:
    """Return labeled, readable test images with the predictions of the run's classifier.

    Args:
        request: how to compute.
        folder: the run's folder.
        trunk: the network before the run, on the device to use.
        images: training and test images.
        display: the pictures' colors.
    """
    import numpy as np

    from pirl_plugin.checkpoints.classifier import CLASSIFIER_FILE, read_classifier
    from pirl_plugin.checkpoints.load import load_trunk
    from pirl_plugin.evaluation.features import collect, compute_features
    from pirl_plugin.evaluation.pictures import label_names, page_images
    from pirl_plugin.images.classes import NO_CLASS

    file = folder / CLASSIFIER_FILE
    classifier = read_classifier(file)
    assert classifier is not None
    tuned = load_trunk(file).to(next(trunk.parameters()).device)
    rows = np.flatnonzero(images.test_labels != NO_CLASS)
    config = tuned.network_config
    batches = compute_features(
        [tuned], images.test, config, rows.tolist(), request.batch, request.workers
    )
    computed = collect(batches)
    rows = rows[computed.readable.numpy()]
    labels = label_names(images.classes, images.test_labels[rows])
    tested = page_images(images.test, rows.tolist(), display, labels)
    predictions = classifier.predict(computed.features[0])
    return tested.with_predictions(slice(None), *predictions, classifier.classes)


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = arguments.command_parser(
        "finetune",
        "Fine-tune all layers of a checkpoint, and a linear classifier, on labeled images.",
        "--checkpoint runs/mine/checkpoint.torch --data DIR --scratch",
        arguments.NETWORK,
        arguments.LABELED_DATA,
        arguments.IMAGES,
        arguments.COMPUTING,
        arguments.REPORT,
        weights=arguments.WEIGHTS,
    )
    parser.usage = "%(prog)s [options] [KEY=VALUE …]"
    parser.set_defaults(batch=_BATCH)
    add = parser.add_argument
    out = "folder for the run (default: %(default)s)"
    add("--out", type=arguments.output_folder, default="runs/finetune", help=out)
    add("--fraction", type=float, help="train on this fraction of the images, such as 0.1")
    add("--scratch", action="store_true", help="also train the same network from random weights")
    overrides = "overrides, as in pirl-plugin train"
    add("overrides", nargs="*", metavar="KEY=VALUE", help=overrides)
    return arguments.parse_labeled(parser, argv)
