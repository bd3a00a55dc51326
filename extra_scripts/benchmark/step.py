"""Measure a training step on one device: images/s, and the cost of loss, bank, normalization.

PIRL (jigsaw) in a plain PyTorch loop, without VISSL: a ResNet, both heads, the loss with its bank,
SGD. The steps repeat the same decoded images from pinned memory, so no loader limits the step. The
input pipeline is timed separately on one core, which gives the workers that a step needs.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable
from typing import Any

import torch
import torchvision
from pipeline import image_folder
from shared import add_data, add_device, add_rows, new_parser, print_table, report
from timing import interleave, seconds_between
from torch import Tensor

from pirl_plugin import (
    ImageDataset,
    JigsawViews,
    PIRLHead,
    PIRLLoss,
    cli,
    collate_views,
    normalize_images,
)
from pirl_plugin.system.arguments import WholeNumber

_PARTS = ("copy", "normalise", "forward", "loss", "backward", "update", "bank")
_PLUGIN = ("normalise", "loss", "bank")  # what PIRL adds to training a network
_PRECISIONS = ["float32", "tf32", "bfloat16"]
_DIM = 128


def main(arguments: list[str]) -> None:
    """Run the script."""
    measures = "a training step on one device, without VISSL: images per second, share of the loss"
    parser = new_parser("step.py", measures)
    add_data(parser, images=32)
    add_device(parser)
    add_rows(parser)
    add = parser.add_argument
    add(
        "--depth",
        type=int,
        choices=(18, 50),
        default=50,
        help="ResNet depth (default: %(default)s)",
    )
    add("--precision", nargs="+", choices=_PRECISIONS, default=_PRECISIONS,
        help="dtype for matrix products")  # fmt: skip
    batches = [32, 64, 128, 256]
    add("--batch", type=WholeNumber(1), nargs="+", default=batches, help="images per step")
    add("--negatives", type=WholeNumber(1), default=32_000, help="N (default: %(default)s)")
    add(
        "--steps",
        type=WholeNumber(1),
        default=10,
        help="timed steps, after 3 untimed steps (default: %(default)s)",
    )
    report(run, parser.parse_args(arguments))


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure and print; return ``rows``, and ``input_images_per_s`` for the pipeline on a core."""
    with image_folder(options.data, options.images) as folder:
        data = ImageDataset(folder, JigsawViews())

        def read() -> dict[str, Tensor]:
            return collate_views([data[row] for row in range(len(data))])

        views = read()
        seconds = interleave({"read": read}, rounds=2)["read"]
        per_second = len(data) / min(seconds)
    rows = []
    for precision in options.precision:
        for batch in options.batch:
            row = {"device": options.device, "precision": precision, "batch": batch}
            try:
                row |= _measure(views, precision, batch, options)
            except torch.OutOfMemoryError:
                print(f"skipped: {precision}, B = {batch}: the device has too little memory")
                torch.cuda.empty_cache()
                continue
            row["workers_needed"] = math.ceil(row["images_per_s"] / per_second)
            rows.append(row)
    print_table(rows)
    print(f"Input pipeline, one core: {per_second:.3g} images/s")
    return {
        "depth": options.depth,
        "negatives": options.negatives,
        "bank_rows": options.rows,
        "data": str(options.data) if options.data else "drawn",
        "input_images_per_s": per_second,
        "rows": rows,
    }


def _measure(
    views: dict[str, Tensor], precision: str, batch: int, options: argparse.Namespace
) -> dict[str, Any]:
    """Return a row with medians over the timed steps."""
    torch.backends.cudnn.allow_tf32 = precision != "float32"
    torch.set_float32_matmul_precision("highest" if precision == "float32" else "high")
    step = _training_step(views, precision == "bfloat16", batch, options)
    on_gpu = options.device == "cuda"
    for _ in range(3):
        step(lambda: None)
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    timed = [seconds_between(step, options.device) for _ in range(options.steps)]

    def share(*parts: str) -> float:
        indices = [_PARTS.index(part) for part in parts]
        shares = [sum(seconds[index] for index in indices) / sum(seconds) for seconds in timed]
        return statistics.median(shares)

    total = statistics.median(map(sum, timed))
    return {
        "images_per_s": batch / total,
        "ms_median": 1e3 * total,
        "ms_min": 1e3 * min(map(sum, timed)),
        "peak_gb": torch.cuda.max_memory_allocated() / 1e9 if on_gpu else None,
        "plugin_share": share(*_PLUGIN),
        **{f"{part}_share": share(part) for part in _PARTS},
    }


def _training_step(
    views: dict[str, Tensor], autocast: bool, batch: int, options: argparse.Namespace
) -> Callable[[Callable[[], None]], None]:
    """Return a function that makes one step and calls its argument between parts."""
    torch.manual_seed(0)
    trunk = torchvision.models.get_model(f"resnet{options.depth}")
    width = trunk.fc.in_features
    trunk.fc = torch.nn.Identity()
    f = PIRLHead(width, _DIM)
    g = PIRLHead(width, _DIM, num_patches=9)
    model = torch.nn.ModuleList([trunk, f, g]).to(options.device)
    model.to(memory_format=torch.channels_last)
    loss = PIRLLoss(
        options.rows, embedding_dim=_DIM, num_negatives=options.negatives, norm_constant=2.9e6
    ).to(options.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9, weight_decay=1e-4)
    inputs = []
    for name, count in (("images", batch), ("patches", 9 * batch)):
        times = math.ceil(count / len(views[name]))
        repeated = views[name].repeat(times, 1, 1, 1)[:count].contiguous()
        inputs.append(repeated.pin_memory() if options.device == "cuda" else repeated)

    def step(end_part: Callable[[], None]) -> None:
        index = torch.randint(options.rows, (batch,)).to(options.device, non_blocking=True)
        moved = [view.to(options.device, non_blocking=True) for view in inputs]
        end_part()
        images, patches = map(normalize_images, moved)
        end_part()
        with torch.autocast(options.device, torch.bfloat16, enabled=autocast):
            f_image = f(trunk(images))
            g_patches = g(trunk(patches))
        end_part()
        value = loss(f_image, g_patches, index)
        end_part()
        optimizer.zero_grad()
        value.backward()
        end_part()
        optimizer.step()
        end_part()
        loss.update(index, f_image)

    return step


if __name__ == "__main__":
    cli.main(main)
