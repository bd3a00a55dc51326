"""After ``finetune``: the saved classifier, and the page that compares it with frozen features."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pirl_plugin.checkpoints.classifier import CLASSIFIER_FILE, Classifier
from pirl_plugin.checkpoints.load import load_trunk
from pirl_plugin.checkpoints.read import RUN_CONFIG, final_checkpoint, read_checkpoint, read_config
from pirl_plugin.checkpoints.write import save_trunk
from pirl_plugin.evaluation.features import collect, compute_features
from pirl_plugin.evaluation.logistic import fit_layers
from pirl_plugin.evaluation.page import Accuracy, Report
from pirl_plugin.evaluation.request import Request
from pirl_plugin.images.classes import NO_CLASS
from pirl_plugin.images.labeled import LabeledImages
from pirl_plugin.models.resnet import LAST
from pirl_plugin.models.trunks import AnyTrunk
from pirl_plugin.system.text import printable
from pirl_plugin.vissl.adapters.dataset import draw_rows


def save_classifier(folder: Path, classes: list[str]) -> tuple[AnyTrunk, Classifier]:
    """Save a finished run's network with its classifier, for ``embed`` and ``export``.

    Args:
        folder: the run's folder.
        classes: name for each output.
    """
    checkpoint = final_checkpoint(folder)
    assert checkpoint is not None  # the run is finished
    content: Any = read_checkpoint(checkpoint)
    head = content["classy_state_dict"]["base_model"]["model"]["heads"]
    names = list(map(printable, classes))
    classifier = Classifier(head["0.clf.0.weight"], head["0.clf.0.bias"], names, LAST)
    trunk = load_trunk(checkpoint)
    file = folder / CLASSIFIER_FILE
    save_trunk(trunk, file, classifier)
    print(f"{file}: the network and its classifier, for pirl-plugin embed and export")
    return trunk, classifier


def drawn_images(images: LabeledImages, folder: Path) -> LabeledImages:
    """Return a run's images; training images that the run did not draw are marked unlabeled.

    Args:
        images: all training and test images.
        folder: folder of the finished run; its configuration has the number of images and the seed.
    """
    section = read_config(folder / RUN_CONFIG)["DATA"]["TRAIN"]
    drawn = draw_rows(images.train_labels, section["DATA_LIMIT"], section["DATA_LIMIT_SAMPLING"])
    labels = images.labels.copy()
    labels[np.delete(np.arange(len(images.train)), drawn)] = NO_CLASS  # training images are first
    return replace(images, labels=labels)


def write_report(
    report: Report,
    request: Request,
    images: LabeledImages,
    top1: float,
    trunk: AnyTrunk,
    tuned: AnyTrunk,
    classifier: Classifier,
) -> None:
    """Fit logistic regressions to frozen features for comparison, and write the page.

    Args:
        report: the page.
        request: how to compute.
        images: the images that the run trained on, and the test images.
        top1: the run's accuracy on the test images, percent.
        trunk: the network before the run, on the device to use.
        tuned: the network after the run.
        classifier: the classifier on ``tuned``.
    """
    frozen = fit_layers(trunk, images, trunk.layers, workers=request.workers)
    frozen_top1 = frozen.accuracy(frozen.chosen).percent
    print(f"Frozen, a logistic regression on {frozen.chosen}: top-1 {frozen_top1:.2f} %")
    measured = frozen.measured
    test_rows = measured.rows[measured.num_train :].tolist()
    accuracy = Accuracy("fine-tuned", top1, len(test_rows))
    frozen_accuracy = Accuracy(f"frozen, {frozen.chosen}", frozen_top1, len(test_rows))
    device = next(trunk.parameters()).device
    tuned = tuned.to(device)
    batches = compute_features(
        lambda inputs: [tuned(inputs)],
        images.joined,
        tuned.network_config,
        test_rows,
        workers=request.workers,
        device=device,
    )
    computed = collect(batches, len(test_rows))
    numbers = computed.readable.nonzero()[:, 0] + measured.num_train
    predictions = classifier.predict(computed.features[0])
    page_images = measured.show(report.display).with_predictions(
        numbers.tolist(), *predictions, classifier.classes
    )
    report.write(
        title="Fine-tuning, and a classifier on frozen features",
        images=page_images,
        measured=measured,
        accuracy=accuracy,
        charts={"": [accuracy, frozen_accuracy]},
        confusion=page_images.confusion,
        mistakes_text="Of the fine-tuned network.",
    )
