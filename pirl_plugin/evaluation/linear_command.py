"""``pirl-plugin linear``: a logistic regression on a network's frozen features."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import replace
from statistics import mean
from typing import TYPE_CHECKING, Any

from pirl_plugin.system import arguments
from pirl_plugin.system.files import locked, write_json
from pirl_plugin.system.loader import prepare_workers
from pirl_plugin.system.text import printable

if TYPE_CHECKING:
    from pathlib import Path

    from pirl_plugin.evaluation.logistic import LogisticFits
    from pirl_plugin.evaluation.page import Report

_MOST_CLASSES = 30  # listed on the console


def main(argv: list[str]) -> None:
    """Fit logistic regressions, print accuracies, and save the classifier for the chosen layer."""
    options = _parse(argv)
    prepare_workers("pirl_plugin.evaluation.crops", options.workers)
    from pirl_plugin.checkpoints.classifier import CLASSIFIER_FILE, Classifier
    from pirl_plugin.checkpoints.write import save_trunk
    from pirl_plugin.evaluation.knn_command import RESULTS
    from pirl_plugin.evaluation.logistic import fit_layers
    from pirl_plugin.evaluation.page import open_report
    from pirl_plugin.evaluation.request import Request

    request = Request.of_options(options)
    file = options.out / CLASSIFIER_FILE
    with locked(options.out, "--out"):
        trunk, images = request.open_labeled("linear", options.out)
        report = open_report(options.report, options.show, images.train, request.weights, trunk)
        layers = trunk.layers if request.layer is None else (request.layer,)
        fitted = fit_layers(trunk, images, layers, request.batch, request.workers, options.fit_all)
        saved = fitted.saved
        names = [printable(images.classes[label]) for label in saved.labels]
        classifier = Classifier(saved.weight.float(), saved.bias.float(), names, fitted.chosen)
        save_trunk(trunk.cpu(), file, classifier)
        write_json(options.out / RESULTS, _results(fitted))
    _print_accuracies(fitted)
    images_used = "all labeled images" if options.fit_all else "the training images"
    print(f"{file}: the network with a classifier on {fitted.chosen}, fitted to {images_used}")
    next_command = (
        f"pirl-plugin embed --checkpoint {shlex.quote(str(file))} --data PHOTOS --out photos.csv "
        f"--no-features --sort-into sorted"
    )
    if options.pattern is not None:
        next_command += f" --pattern {shlex.quote(options.pattern)}"
    print(f"To sort other photos:\n  {next_command}")
    if report is not None:
        _write_page(report, fitted, file, {"Sort other photos": next_command})


def _results(fitted: LogisticFits) -> dict[str, Any]:
    """Return the content of ``results.json``.

    ``right`` has a digit for each labeled, readable test image, in order: 1 if its predicted class
    is correct.
    """
    layers = {}
    for layer, fit in fitted.fits.items():
        layers[layer] = {
            "held_out_top1": fit.held_out_top1,
            "test_top1": fitted.accuracy(layer).percent,
            "C": fit.cost,
            "right": "".join(map(str, fitted.is_right(layer).int().tolist())),
        }
    return {
        "chosen": fitted.chosen,
        "chance_top1": fitted.measured.chance_top1,
        "near_equal": fitted.measured.near_equal,
        "layers": layers,
    }


def _print_accuracies(fitted: LogisticFits) -> None:
    """Print one line per layer, the chosen layer's accuracy, and one line per class."""
    measured = fitted.measured
    num_test = len(measured.test_labels)
    print(
        f"Logistic regression, top-1 in percent ({measured.num_train:,} training and {num_test:,} "
        f"test images; C and the layer are chosen on {len(fitted.best.held_out_right):,} held-out "
        f"training images):\n  {'':8}{'held out':>10}{'test':>8}{'C':>10}"
    )
    for layer, fit in fitted.fits.items():
        chosen = "  chosen" if layer == fitted.chosen else ""
        top1 = fitted.accuracy(layer).percent
        print(f"  {layer:8}{fit.held_out_top1:10.2f}{top1:8.2f}{fit.cost:10g}{chosen}")
    accuracy = fitted.accuracy(fitted.chosen)
    by_class = fitted.accuracy_by_class()
    print(
        f"{fitted.chosen}: {accuracy.percent:.2f} ± {accuracy.error:.2f} % (95 % interval for "
        f"{num_test:,} test images), mean over classes "
        f"{mean(of_class.percent for of_class in by_class):.2f} %, chance "
        f"{measured.chance_top1:.2f} %"
    )
    print("Accuracy (%) and number of test images by class, the least accurate first:")
    for of_class in sorted(by_class, key=lambda accuracy: accuracy.percent)[:_MOST_CLASSES]:
        print(f"  {of_class.percent:6.2f} {of_class.count:7,}  {of_class.name}")


def _write_page(report: Report, fitted: LogisticFits, file: Path, commands: dict[str, str]) -> None:
    layer = fitted.chosen
    measured = fitted.measured
    bars = {name: fitted.accuracy(name) for name in fitted.fits}
    bars[layer] = replace(bars[layer], name=f"{layer} (chosen)")
    images = measured.show(report.display).with_predictions(
        slice(measured.num_train, None), *fitted.predictions[layer], measured.images.classes
    )
    report.write(
        title="Linear classifiers on frozen features",
        images=images,
        measured=measured,
        accuracy=bars[layer],
        charts={"": [*bars.values()], f"{layer} by class": fitted.accuracy_by_class()},
        introduction=(
            f"{len(fitted.best.held_out_right):,} held-out training images chose C and, unless "
            f"you named it, the layer: with {layer}, {fitted.best.held_out_top1:.1f} % of them are "
            f"classified correctly. The test images played no part in this. The classifier is in "
            f"{file}."
        ),
        confusion=images.confusion,
        mistakes_text="Among the test images.",
        commands=commands,
    )


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = arguments.command_parser(
        "linear",
        "Classify images: fit a linear classifier to frozen features, which are computed once.",
        "--timm tf_efficientnet_lite0 --pretrained --data DIR",
        arguments.LABELED_DATA,
        arguments.FEATURES,
        weights=arguments.WEIGHTS,
    )
    add = parser.add_argument
    layer = "fit only this layer (default: fit every layer, and choose one on held-out images)"
    add("--layer", metavar="NAME", help=layer)
    fit_all = "after measuring the accuracy, fit the saved classifier to the test images too"
    add("--fit-all", action="store_true", help=fit_all)
    out = "folder for classifier.torch and results.json (default: %(default)s)"
    add("--out", type=arguments.output_folder, default="runs/linear", help=out)
    return arguments.parse_labeled(parser, argv)
