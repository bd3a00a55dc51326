"""After ``finetune``: the saved classifier, and its page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pirl_plugin.checkpoints.classifier import CLASSIFIER_FILE, Classifier
from pirl_plugin.checkpoints.load import load_trunk
from pirl_plugin.checkpoints.read import RUN_CONFIG, final_checkpoint, read_checkpoint, read_config
from pirl_plugin.checkpoints.write import save_trunk
from pirl_plugin.evaluation.labeled_features import labeled_features
from pirl_plugin.evaluation.page import Accuracy, Report
from pirl_plugin.evaluation.request import Request
from pirl_plugin.images.classes import NO_CLASS
from pirl_plugin.images.labeled import LabeledImages
from pirl_plugin.models.resnet import LAST
from pirl_plugin.models.trunks import AnyTrunk
from pirl_plugin.system.arguments import usable_device
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
    tuned: AnyTrunk,
    classifier: Classifier,
) -> None:
    """Write the page with a fine-tuned network's accuracy and mistakes.

    Args:
        report: the page.
        request: how to compute.
        images: the images that the run trained on, and the test images.
        top1: the run's accuracy on the test images, percent.
        tuned: the network after the run.
        classifier: the classifier on ``tuned``.
    """
    tuned = tuned.to(usable_device(request.device))
    measured = labeled_features([tuned], [LAST], images, None, request.batch, request.workers)
    _, features = measured.split(measured.features[0])
    page_images = measured.show(report.display).with_predictions(
        slice(measured.num_train, None), *classifier.predict(features), classifier.classes
    )
    accuracy = Accuracy("fine-tuned", top1, len(features))
    report.write(
        title="A fine-tuned network",
        images=page_images,
        measured=measured,
        accuracy=accuracy,
        charts={"": [accuracy]},
        confusion=page_images.confusion,
        mistakes_text="Among the test images.",
    )
