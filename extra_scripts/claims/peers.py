"""Compare PIRL with other methods on equal terms: same images, network, loader and metrics.

    python extra_scripts/claims/peers.py --data DIR --out OUT

``DIR`` holds ``train/CLASS/*`` and ``val/CLASS/*``. SimCLR, MoCo v2 and BYOL use lightly's losses,
heads and transforms (``pip install pirl-plugin[claims]``). Every tenth training image is used only
to choose a batch and a learning rate for each method, with seed 0. Seeds 1, 2, … train on the other
images and are evaluated on ``val``: once after equally many images, and once after the processor
time that PIRL, or the first method in ``--methods``, takes for them. The time follows from the cost
per image, which is measured for all methods in turn in this process. With a single batch and rate,
nothing is chosen.

Finished runs are recorded in ``OUT/peers.json``; run the same command again to continue. Networks
are in ``OUT/trunks``, with torchvision's tensor names.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from layer_accuracy import LAST, accuracies, layer_features
from peer_methods import METHODS, Method
from recorded import RecordedRows, versions
from torch import nn
from torch.utils.data import DataLoader
from training import (
    Photos,
    channels_last,
    decoded,
    fast_precision,
    labels_of,
    loader_of,
    measure_costs,
    train,
)

import pirl_plugin as pirl
from pirl_plugin.system.arguments import Parser
from pirl_plugin.system.cores import processor_name

# The grid for each method; rates are for 32 images.
BATCHES = (32, 128)
RATES = (0.03, 0.06)
PACKAGES = ("pirl-plugin", "lightly", "torch", "torchvision")


class Comparison:
    """The images, network and metrics that all methods share.

    Args:
        options: the command's options.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        side = 2 * options.image_size  # so that crops of half an image are not enlarged
        self.classes, self.train = decoded(options.data / "train", side)
        _, self.test = decoded(options.data / "val", side)
        self.tenth = self.train[::10]
        self.rest = [image for number, image in enumerate(self.train) if number % 10]
        order = np.random.default_rng(0).permutation(len(self.rest))[: options.measured_images]
        self.gallery = [self.rest[number] for number in sorted(order)]

    def trunk(self) -> nn.Module:
        """Return an untrained network, in the memory format that is fastest on a CPU."""
        trunk = pirl.WideResNet(self.options.depth, width=self.options.width)
        trunk.register_forward_pre_hook(channels_last)
        return trunk.to(memory_format=torch.channels_last)

    def measure(self, trunk: nn.Module, test: Any) -> dict[str, float | str]:
        """Return kNN and linear accuracy at the last layer, in percent.

        ``knn_right`` and ``linear_right`` record which test images are right, see
        :func:`intervals.packed`.
        """
        size = self.options.image_size
        device = self.options.device
        gallery, queries = (
            {LAST: layer_features(trunk, part, size, device)[LAST]} for part in (self.gallery, test)
        )
        labels = labels_of(self.gallery), labels_of(test)
        measured = accuracies(gallery, labels[0], queries, labels[1], fractions=(1.0,))
        top1 = {f"{measure}_top1": entry["last"] for measure, entry in measured.items()}
        return top1 | {f"{name}_right": entry["last_right"] for name, entry in measured.items()}

    def prepare(
        self, name: str, seed: int, batch: int, images: Photos, **settings: Any
    ) -> tuple[nn.Module, Method, DataLoader[Any]]:
        """Return an untrained trunk, a method that trains it, and a loader for the images."""
        options = self.options
        torch.manual_seed(seed)
        trunk = self.trunk()
        width = trunk(torch.zeros(2, 3, 64, 64)).shape[1]
        method = METHODS[name](trunk, width, len(images), options.image_size, **settings)
        method.to(options.device)
        return trunk, method, loader_of(images, method, batch, seed, options.workers)

    def run(
        self, name: str, seed: int, batch: int, rate: float, epochs: int, test: Any, **settings: Any
    ) -> dict[str, Any]:
        """Train a method and evaluate its trunk on ``test``: a row in ``peers.json``.

        Args:
            name: a key in ``METHODS``.
            seed: seed for weights, image order and views.
            batch: images per step.
            rate: learning rate for a batch of 32 images.
            epochs: number of epochs over the nine tenths.
            test: labeled images to evaluate the trunk on.
            settings: additional arguments for the method.
        """
        options = self.options
        trunk, method, loader = self.prepare(name, seed, batch, self.rest, **settings)
        autocast = options.precision == "bfloat16"
        length = train(method, loader, epochs, rate, device=options.device, autocast=autocast)
        changes = [f"{key}{value}" for key, value in settings.items()]
        words = [name, f"batch{batch}", f"rate{rate}", *changes, f"{epochs}epochs", f"seed{seed}"]
        file = options.out / "trunks" / f"{'_'.join(words)}.pth"
        file.parent.mkdir(parents=True, exist_ok=True)
        torch.save(trunk.state_dict(), file)
        return {
            "method": name,
            "seed": seed,
            "batch": batch,
            "rate_of_32_images": rate,
            "epochs": epochs,
            "images": length.images,
            "cpu_seconds": length.cpu_seconds,
            "seconds": length.seconds,
            "loss": length.loss,
            "trunk": file.name,
            **self.measure(trunk, test),
        }

    def costs(self, chosen: dict[str, tuple[int, float]]) -> dict[str, float]:
        """Measure each method's processor milliseconds per image.

        Args:
            chosen: method → batch and rate.
        """
        options = self.options
        images = self.rest[:512]
        runs: dict[str, Callable[[], object]] = {}
        for name, (batch, _) in chosen.items():
            _, method, loader = self.prepare(name, 0, batch, images)
            autocast = options.precision == "bfloat16"
            settings = {"device": options.device, "autocast": autocast, "fill": False}
            runs[name] = partial(train, method, loader, 1, 0.0, **settings)
        return measure_costs(runs, len(images))

    def random(self, seed: int) -> dict[str, Any]:
        """Evaluate an untrained trunk."""
        torch.manual_seed(seed)
        trunk = self.trunk().to(self.options.device)
        row = {"method": "random", "seed": seed, "epochs": 0, "images": 0, "cpu_seconds": 0.0}
        return {**row, **self.measure(trunk, self.test)}

    def about(self) -> dict[str, Any]:
        """Return settings that all runs share."""
        options = self.options
        gpu = torch.cuda.get_device_name() if options.device == "cuda" else None
        return {
            "data": options.data.resolve().name,
            "classes": len(self.classes),
            "train_images": len(self.rest),
            "selection_images": len(self.tenth),
            "val_images": len(self.test),
            "network": f"ResNet-{options.depth}, width {options.width}",
            "image_size": options.image_size,
            "epochs": options.epochs,
            "precision": options.precision,
            "hardware": gpu or processor_name(),
            "versions": versions(PACKAGES),  # PIRL and NPID do not need lightly
        }


def choose(selection: list[dict[str, Any]], method: str) -> tuple[int, float]:
    """Return batch and rate from a method's best run on the tenth, by kNN + linear."""
    rows = [row for row in selection if row["method"] == method]
    best = max(rows, key=lambda row: row["knn_top1"] + row["linear_top1"])
    return best["batch"], best["rate_of_32_images"]


def equal_time_epochs(costs: dict[str, float], epochs: int, reference: str) -> dict[str, int]:
    """Return the number of epochs for each method that takes as long as the reference's ``epochs``.

    Args:
        costs: method → milliseconds per image, from :func:`training.measure_costs`.
        epochs: the reference's number of epochs.
        reference: the method whose time all get.
    """
    budget = costs[reference]
    return {method: max(1, round(epochs * budget / cost)) for method, cost in costs.items()}


def shared_options(description: str) -> Parser:
    """Return a parser for lengths, seeds, and the options that :class:`Comparison` reads.

    Args:
        description: a script's docstring; the help shows its first line.
    """
    parser = Parser(description=description.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="train/CLASS/*, val/CLASS/*")
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument(
        "--epochs", type=int, default=40, help="number of epochs (default: %(default)s)"
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument(
        "--depth",
        type=int,
        choices=(10, 18, 50),
        default=10,
        help="ResNet depth (default: %(default)s)",
    )
    parser.add_argument(
        "--width", type=float, default=0.5, help="ResNet width (default: %(default)s)"
    )
    parser.add_argument("--image-size", type=int, default=64)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    precisions = ("float32", "bfloat16")
    parser.add_argument("--precision", choices=precisions, default=fast_precision())
    help_text = "training images used to evaluate networks (default: all)"
    parser.add_argument("--measured-images", type=int, help=help_text)
    parser.add_argument(
        "--workers", type=int, default=0, help="loader workers (default: %(default)s)"
    )
    return parser


def main() -> None:
    """Run whatever is missing in ``peers.json``."""
    parser = shared_options(__doc__)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--batches", type=int, nargs="+", default=BATCHES)
    parser.add_argument(
        "--rates",
        type=float,
        nargs="+",
        default=RATES,
        help="learning rates for 32 images (default: %(default)s)",
    )
    parser.add_argument("--chosen", type=Path, help="a peers.json to take the choice from")
    options = parser.parse_args()

    comparison = Comparison(options)
    about = {"setting": comparison.about(), "selection": [], "runs": []}
    rows = RecordedRows(options.out / "peers.json", about)
    content = rows.content
    settings = [*itertools.product(options.batches, options.rates)]
    if len(settings) == 1:  # nothing to choose
        chosen = dict.fromkeys(options.methods, settings[0])
    elif options.chosen is None:
        for method, (batch, rate) in itertools.product(options.methods, settings):
            key = {"method": method, "batch": batch, "rate_of_32_images": rate}
            run = partial(comparison.run, method, 0, batch, rate, options.epochs, comparison.tenth)
            rows.add("selection", key, run)
    else:
        rows.take_selection(options.chosen)
    if len(settings) > 1:
        chosen = {method: choose(content["selection"], method) for method in options.methods}
    for seed in options.seeds:
        key = {"method": "random", "seed": seed, "compared_at": "untrained"}
        rows.add("runs", key, partial(comparison.random, seed))
        for method in options.methods:
            key = {"method": method, "seed": seed, "compared_at": "equal images"}
            batch, rate = chosen[method]
            length = options.epochs
            run = partial(comparison.run, method, seed, batch, rate, length, comparison.test)
            rows.add("runs", key, run)
    if "costs" not in content:
        content["costs"] = comparison.costs(chosen)
    epochs = equal_time_epochs(content["costs"], options.epochs, options.methods[0])
    content["equal_time_epochs"] = epochs
    for seed, method in itertools.product(options.seeds, options.methods):
        if epochs[method] == options.epochs:
            continue  # the same as the runs at equal images
        key = {"method": method, "seed": seed, "compared_at": "equal time"}
        batch, rate = chosen[method]
        length = epochs[method]
        run = partial(comparison.run, method, seed, batch, rate, length, comparison.test)
        rows.add("runs", key, run)


if __name__ == "__main__":
    main()
