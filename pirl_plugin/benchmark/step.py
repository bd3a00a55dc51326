"""A training step on one device: images a second, and the share of loss, bank and input hook.

PIRL (jigsaw) in a plain PyTorch loop, without VISSL: a ResNet, both heads, the loss with its bank,
SGD. The same decoded photos are fed again and again from pinned memory, so that no loader limits
the step; one core's input pipeline is timed beside it, which gives the workers that feed it.
"""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tabulate import tabulate

from pirl_plugin.benchmark.images import image_folder
from pirl_plugin.benchmark.timing import device_of, interleave, seconds_between

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from torch import Tensor

# Parts of a step, in their order. Those of the plugin are what PIRL adds to training a network.
_PARTS = ("copy", "normalise", "forward", "loss", "backward", "update", "bank")
_PLUGIN = ("normalise", "loss", "bank")
_DIM = 128
_HEADERS = {
    "precision": "precision",
    "batch": "B",
    "images_per_s": "images/s",
    "ms_median": "ms",
    "peak_gb": "GB",
    "plugin_share": "loss + bank + hook",
    "loss_share": "loss",
    "workers_needed": "workers",
}


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure and print; returns ``rows``, and ``input_images_per_s``, of a core's pipeline."""
    import torch

    device = device_of(options)
    views, pipeline = _input(options.data, options.images)
    rows = []
    for precision in options.precision:
        for batch in options.batch:
            row = {"device": device, "precision": precision, "batch": batch}
            try:
                row.update(_measure(views, precision, batch, device, options))
            except torch.OutOfMemoryError:
                print(f"left out: {precision}, B = {batch}: more memory than the device has")
                torch.cuda.empty_cache()
                continue
            row["workers_needed"] = math.ceil(row["images_per_s"] / pipeline)
            rows.append(row)
    print(tabulate([{h: row[k] for k, h in _HEADERS.items()} for row in rows], "keys", ".3g"))
    print(f"Input pipeline, one core: {pipeline:.3g} images/s")
    return {
        "depth": options.depth,
        "negatives": options.negatives,
        "bank_rows": options.rows,
        "data": str(options.data) if options.data else "drawn",
        "input_images_per_s": pipeline,
        "rows": rows,
    }


def _input(data: Path | None, images: int) -> tuple[dict[str, Tensor], float]:
    """Views of the photos as a loader gives them, and images a second of one core's pipeline."""
    from pirl_plugin.images.image_dataset import ImageDataset, collate_views
    from pirl_plugin.views.jigsaw import JigsawViews

    with image_folder(data, images) as folder:
        dataset = ImageDataset(folder, JigsawViews())

        def read() -> dict[str, Tensor]:
            return collate_views([dataset[row] for row in range(len(dataset))])

        (seconds,) = interleave({"read": read}, rounds=2).values()
        return read(), len(dataset) / min(seconds)


def _measure(
    views: dict[str, Tensor], precision: str, batch: int, device: str, options: argparse.Namespace
) -> dict[str, Any]:
    """One row: medians over the timed steps."""
    import torch

    tf32 = precision != "float32"
    torch.backends.cudnn.allow_tf32 = tf32
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    step = _training_step(views, precision == "bfloat16", batch, device, options)
    on_gpu = device == "cuda"
    for _ in range(3):
        step(lambda: None)
    if on_gpu:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    timed = [seconds_between(step, device) for _ in range(options.steps)]
    peak = torch.cuda.max_memory_allocated() / 1e9 if on_gpu else None
    total = statistics.median(sum(parts) for parts in timed)
    columns = zip(_PARTS, zip(*timed, strict=True), strict=True)
    shares = {
        f"{name}_share": statistics.median(s / sum(p) for s, p in zip(column, timed, strict=True))
        for name, column in columns
    }
    ours = [_PARTS.index(name) for name in _PLUGIN]
    plugin = statistics.median(sum(parts[i] for i in ours) / sum(parts) for parts in timed)
    return {
        "images_per_s": batch / total,
        "ms_median": 1e3 * total,
        "ms_min": 1e3 * min(sum(parts) for parts in timed),
        "peak_gb": peak,
        "plugin_share": plugin,
        **shares,
    }


def _training_step(
    views: dict[str, Tensor], autocast: bool, batch: int, device: str, options: argparse.Namespace
) -> Callable[[Callable[[], None]], None]:
    """A function that makes one step, and calls what it is given at the end of each part."""
    import torch
    import torchvision

    from pirl_plugin.loss import PIRLLoss
    from pirl_plugin.models.head import PIRLHead
    from pirl_plugin.views.normalization import normalize_images

    torch.manual_seed(0)
    trunk = getattr(torchvision.models, f"resnet{options.depth}")()
    width, trunk.fc = trunk.fc.in_features, torch.nn.Identity()
    f, g = PIRLHead(width, _DIM), PIRLHead(width, _DIM, num_patches=9)
    model = torch.nn.ModuleList([trunk, f, g]).to(device)
    model = model.to(memory_format=torch.channels_last)
    loss = PIRLLoss(
        options.rows, embedding_dim=_DIM, num_negatives=options.negatives, norm_constant=2.9e6
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9, weight_decay=1e-4)
    inputs = {name: _repeated(views[name], batch, device) for name in ("images", "patches")}
    generator = torch.Generator().manual_seed(0)

    def step(end_part: Callable[[], None]) -> None:
        rows = torch.randint(options.rows, (batch,), generator=generator)
        moved = {name: view.to(device, non_blocking=True) for name, view in inputs.items()}
        rows = rows.to(device, non_blocking=True)
        end_part()
        images, patches = (normalize_images(moved[name]) for name in ("images", "patches"))
        end_part()
        with torch.autocast(device, torch.bfloat16, enabled=autocast):
            f_image, g_patches = f(trunk(images)), g(trunk(patches))
        end_part()
        value = loss(f_image, g_patches, rows)
        end_part()
        optimizer.zero_grad()
        value.backward()
        end_part()
        optimizer.step()
        end_part()
        loss.update(rows, f_image)
        end_part()

    return step


def _repeated(views: Tensor, batch: int, device: str) -> Tensor:
    """``batch`` images' views, of those there are; pinned where a GPU reads them."""
    per_image = 9 if views.shape[-1] == 64 else 1
    wanted = batch * per_image
    tensor = views.repeat(-(-wanted // len(views)), 1, 1, 1)[:wanted].contiguous()
    return tensor.pin_memory() if device == "cuda" else tensor
