"""``pirl-plugin linear``: a logistic regression on a network's frozen features."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from pirl_plugin.system import arguments
from pirl_plugin.system.failures import check_name
from pirl_plugin.system.files import locked, write_json
from pirl_plugin.system.loader import prepare_workers

if TYPE_CHECKING:
    from pirl_plugin.evaluation.logistic import LogisticFits
    from pirl_plugin.images.labeled import LabeledImages
    from pirl_plugin.models.trunks import AnyTrunk

_MOST_CLASSES = 30  # listed on the console
_MISTAKES = 12  # pictures on the page


def main(argv: list[str]) -> None:
    """Fit logistic regressions, print accuracies, and save the classifier for the chosen layer."""
    options = _parse(argv)
    prepare_workers("pirl_plugin.evaluation.features", options.workers)
    from pirl_plugin.checkpoints.classifier import CLASSIFIER_FILE, Classifier
    from pirl_plugin.checkpoints.write import save_trunk
    from pirl_plugin.evaluation.knn_command import RESULTS
    from pirl_plugin.evaluation.logistic import fit_layers
    from pirl_plugin.evaluation.network_options import load_trunk_and_images

    trunk, images = load_trunk_and_images(options)
    layers = trunk.layers
    if options.layer is not None:
        check_name("--layer", options.layer, layers)
        layers = (options.layer,)
    file = options.out / CLASSIFIER_FILE
    with locked(options.out, "--out"):
        fitted = fit_layers(trunk, images, layers, options.batch, options.workers)
        best = fitted.best
        names = [images.classes[label] for label in best.labels]
        classifier = Classifier(best.weight.float(), best.bias.float(), names, fitted.chosen)
        save_trunk(trunk.cpu(), file, classifier)
        write_json(options.out / RESULTS, fitted.results())
    print(fitted.table())
    by_class = fitted.accuracy_by_class()
    print("Accuracy (%) and number of test images by class, the least accurate first:")
    for label in sorted(by_class, key=lambda label: by_class[label][0])[:_MOST_CLASSES]:
        top1, count = by_class[label]
        print(f"  {top1:6.2f} {count:7,}  {images.classes[label]}")
    print(f"{file}: the network with a classifier on {fitted.chosen}")
    next_command = (
        f"pirl-plugin embed --checkpoint {shlex.quote(str(file))} --data PHOTOS --out photos.csv "
        f"--no-features --sort-into sorted"
    )
    print(f"To sort other photos:\n  {next_command}")
    if options.report is not None:
        _write_page(options, trunk, images, fitted, {"Sort other photos": next_command})


def _write_page(
    options: argparse.Namespace,
    trunk: AnyTrunk,
    images: LabeledImages,
    fitted: LogisticFits,
    commands: dict[str, str],
) -> None:
    import numpy as np
    import torch
    from sklearn.metrics import confusion_matrix

    from pirl_plugin.evaluation.network_options import report_accuracies
    from pirl_plugin.evaluation.page import Accuracy, Chart, ShownImages

    layer = fitted.chosen
    accuracies = {}
    for name in fitted.fits:
        accuracies[f"{name} (chosen)" if name == layer else name] = fitted.test_top1(name)
    classes = images.classes
    bars = [
        Accuracy(classes[label], top1, count)
        for label, (top1, count) in fitted.accuracy_by_class().items()
    ]
    labels = fitted.test_labels
    pictures = ShownImages(
        images.test, fitted.test_rows.tolist(), torch.from_numpy(labels), classes
    )
    predicted = fitted.predicted[layer]
    probability = fitted.probability
    wrong = np.flatnonzero(predicted != labels)
    mistakes = []
    for number in wrong[np.argsort(-probability[wrong], kind="stable")][:_MISTAKES].tolist():
        picture = pictures.picture(number)
        label = (
            f"{picture.label}, predicted: {classes[predicted[number]]}, "
            f"{100 * probability[number]:.0f} %"
        )
        mistakes.append(replace(picture, label=label))
    counts = confusion_matrix(labels, predicted, labels=range(len(classes)))
    report_accuracies(
        options,
        "Linear classifiers on frozen features",
        trunk,
        images,
        accuracies,
        num_train=fitted.num_train,
        num_tested=len(labels),
        charts=[Chart(f"{layer} by class", bars)],
        introduction=(
            f"{options.out / 'classifier.torch'} contains the classifier on {layer}, the best "
            f"layer on {len(fitted.best.held_out_right):,} held-out training images "
            f"({fitted.best.held_out_top1:.1f} % correct). The test images played no part in this."
        ),
        confusion=dict(zip(classes, counts.tolist(), strict=True)),
        mistakes=mistakes,
        commands=commands,
    )


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = arguments.command_parser(
        "linear",
        "Classify images: fit a linear classifier to frozen features, which are computed once.",
        "--timm tf_efficientnet_lite0 --pretrained --data DIR",
        arguments.NETWORK,
        arguments.LABELED_DATA,
        arguments.IMAGES,
        arguments.COMPUTING,
        weights=arguments.WEIGHTS,
    )
    add = parser.add_argument
    layer = "fit only this layer (default: fit every layer, and choose one on held-out images)"
    add("--layer", metavar="NAME", help=layer)
    out = "folder for classifier.torch and results.json"
    add("--out", type=arguments.output_folder, default="runs/linear", help=out)
    page = "write a page with the accuracies"
    add("--report", metavar="FILE.html", type=arguments.OutputFile((".html",)), help=page)
    return arguments.parse_labeled(parser, argv)
