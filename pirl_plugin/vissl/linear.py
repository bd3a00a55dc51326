"""``pirl-plugin linear``: linear classifiers on a checkpoint's frozen features.

scikit-learn fits them to features that are computed once. With ``--fit vissl``, VISSL's benchmark
trains them.
"""

from __future__ import annotations

import argparse
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from pirl_plugin.system import arguments
from pirl_plugin.system.failures import check_name
from pirl_plugin.system.files import locked, write_json
from pirl_plugin.system.text import printable
from pirl_plugin.vissl.host_config import require_host
from pirl_plugin.vissl.run import labeled_run

if TYPE_CHECKING:
    from pirl_plugin.evaluation.logistic import LogisticFits
    from pirl_plugin.images.labeled import LabeledImages
    from pirl_plugin.models.trunks import AnyTrunk

# (depth, width) -> overlay with this network's layer pooling, as in App. C of the paper.
_OVERLAYS = {
    (18, 1): "resnet18",
    (50, 1): "resnet50",
    (50, 2): "resnet50_c2x",
    (50, 4): "resnet50_c4x",
}
_TITLE = "Linear classifiers on frozen features"
_MOST_CLASSES = 30  # listed on the console
_MISTAKES = 12  # pictures on the page


def main(argv: list[str]) -> int:
    """Train classifiers, and print the top-1 accuracy for each layer."""
    options = _parse(argv)
    if options.fit == "vissl":
        return _fit_with_vissl(options)
    _fit_logistic(options)
    return 0


def _fit_with_vissl(options: argparse.Namespace) -> int:
    """Run VISSL's benchmark, and print accuracies; return the exit status."""
    require_host()
    from pirl_plugin.evaluation.finished_runs import final_accuracy, num_tested
    from pirl_plugin.evaluation.network_options import load_trunk_and_images, report_accuracies
    from pirl_plugin.images.classes import NO_CLASS
    from pirl_plugin.vissl.run import launch

    trunk, images = load_trunk_and_images(options)
    benchmark = choose_benchmark(trunk)
    print(labeled_run.UNCHECKED, flush=True)
    status = launch.main([*benchmark, *labeled_run.run_overrides(options, trunk, images)])
    if status != 0:
        return status
    accuracies = final_accuracy(options.out)
    tested = num_tested(options.out)
    print(f"{tested:,} labeled test images")
    print("Linear top-1 (%):")
    for layer, top1 in accuracies.items():
        print(f"  {layer:8}{top1:6.2f}")
    if options.report is not None:
        num_train = int((images.train_labels != NO_CLASS).sum())
        report_accuracies(options, _TITLE, trunk, images, accuracies, num_train, tested)
    return 0


def _fit_logistic(options: argparse.Namespace) -> None:
    """Fit logistic regressions, print accuracies, and save the classifier for the chosen layer."""
    from pirl_plugin.checkpoints.classifier import CLASSIFIER_FILE, Classifier
    from pirl_plugin.checkpoints.write import save_trunk
    from pirl_plugin.evaluation.knn_command import RESULTS
    from pirl_plugin.evaluation.logistic import fit_layers
    from pirl_plugin.evaluation.network_options import load_trunk_and_images

    trunk, images = load_trunk_and_images(options)
    trunk.to(arguments.device("auto"))
    layers = trunk.layers
    if options.layer is not None:
        check_name("--layer", options.layer, layers)
        layers = (options.layer,)
    file = options.out / CLASSIFIER_FILE
    with locked(options.out, "--out"):
        fitted = fit_layers(trunk, images, layers)
        best = fitted.best
        names = [printable(images.classes[label]) for label in best.labels]
        classifier = Classifier(best.weight.float(), best.bias.float(), names, fitted.chosen)
        save_trunk(trunk.cpu(), file, classifier)
        write_json(options.out / RESULTS, fitted.results())
    print(fitted.table())
    by_class = fitted.accuracy_by_class()
    print("Accuracy (%) and number of test images by class, the least accurate first:")
    for label in sorted(by_class, key=lambda label: by_class[label][0])[:_MOST_CLASSES]:
        top1, count = by_class[label]
        print(f"  {top1:6.2f} {count:7,}  {printable(images.classes[label])}")
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
        _TITLE,
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


def choose_benchmark(trunk: AnyTrunk) -> list[str]:
    """Return the overrides for the benchmark that fits a trunk.

    It measures five layers for the paper's networks and for ResNet-18, as in Table 2, and only the
    pooled features for others, such as the narrow network in ``quick_jigsaw``.
    """
    from pirl_plugin.models.resnet import ResNetTrunk

    full = "config=benchmark/pirl/linear_imagenet1k"
    if not isinstance(trunk, ResNetTrunk):
        return [full, "+config/pirl/linear=timm", *labeled_run.timm_overrides(trunk)]
    network = trunk.network_config.options
    overlay = _OVERLAYS.get((network["depth"], network["width"]))
    if overlay and not network["small_stem"]:
        return [full, f"+config/pirl/linear={overlay}"]
    return ["config=benchmark/pirl/quick_linear", *labeled_run.resnet_overrides(trunk)]


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = labeled_run.labeled_parser(
        "linear",
        "Classify images: fit a linear classifier to a checkpoint's frozen features.",
        "--timm tf_efficientnet_lite0 --pretrained --data DIR",
        "runs/linear",
    )
    add = parser.add_argument
    fit = (
        "logistic: fit scikit-learn's logistic regression to features that are computed once, and "
        "save the classifier; vissl: run VISSL's benchmark, which trains for 28 epochs"
    )
    add("--fit", choices=("logistic", "vissl"), default="logistic", help=fit)
    layer = "fit only this layer (default: fit every layer, and choose one on held-out images)"
    add("--layer", metavar="NAME", help=layer)
    options = parser.parse_args(argv)
    if options.fit == "vissl" and options.layer is not None:
        parser.error("--layer: --fit vissl trains on every layer; omit one of the two")
    if options.fit == "logistic" and options.overrides:
        parser.error(f"{options.overrides[0]}: overrides need --fit vissl")
    return options
