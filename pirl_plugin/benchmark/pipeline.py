"""From image file to batch: VISSL's own PIRL pipeline, ours, and the lower bound.

One process, one thread, its CPU time, all pipelines in turn on the same images. Each is a data set
that the host builds from a config, read sample by sample and collated: what a loader's worker does.
VISSL's ends in normalised float32, ours in bytes that are normalised where the model runs:
``normalised`` is ours with that, on this CPU. VISSL's folders decode each image twice;
``vissl_filelist``, its lists of files, once.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tabulate import tabulate

from pirl_plugin.benchmark.images import image_folder
from pirl_plugin.benchmark.loaders import loader_table
from pirl_plugin.benchmark.peers import TRANSFORMS, our_pipeline, vissl_pipeline
from pirl_plugin.benchmark.timing import interleave, ratio

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

_HEADERS = {
    "transform": "transform",
    "pipeline": "pipeline",
    "ms_min": "ms, min",
    "ms_median": "ms, median",
    "images_per_s_per_core": "images/s/core",
    "ratio_to_vissl": "times VISSL's",
    "ratio_to_filelist": "times its filelist's",
    "decode_share": "decode's share",
}


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure, print both tables; returns ``{"rows": [...], "loaders": [...]}``."""
    import torch

    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    with image_folder(options.data, options.images) as folder:
        for transform in TRANSFORMS:
            rows += measure(folder, transform, options.rounds)
        print(tabulate([{h: r[k] for k, h in _HEADERS.items()} for r in rows], "keys", ".3g"))
        normalise = _normalise_ms(folder, options.rounds)
        print(f"Normalising a jigsaw batch on this CPU: {normalise:.3g} ms an image, median")
        loaders = loader_table(folder, options.workers) if options.workers else []
    return {"rows": rows, "normalise_ms": normalise, "loaders": loaders}


def measure(folder: Path, transform: str, rounds: int) -> list[dict[str, Any]]:
    """Rows of the first table for one transform.

    Args:
        folder: of images, as ``image_folder`` makes it.
        transform: one of ``TRANSFORMS``.
        rounds: times that each pipeline passes over the folder.

    Returns:
        A row for each pipeline: milliseconds an image, images a second, and ``ratio_to_vissl``,
        how many times the speed of VISSL's folders it has, ``ratio_to_filelist``, of VISSL's lists
        (both None where VISSL has no such pipeline), and ``decode_share``, the part of its time
        that our decoding alone takes. All three are medians of the rounds' ratios.
    """
    pipelines = {
        "vissl": vissl_pipeline(folder, transform),
        "vissl_filelist": vissl_pipeline(folder, transform, "disk_filelist"),
        "fused": our_pipeline(folder, transform),
    }
    functions = {name: _batch(*made) for name, made in pipelines.items() if made is not None}
    fused = pipelines["fused"]
    assert fused is not None
    functions["normalised"] = _normalised(functions["fused"])
    (source,) = fused[0].data_objs
    functions["decode"] = lambda: [source[index] for index in range(len(source))]
    seconds = interleave(functions, rounds, clock=time.process_time)
    count = len(source)
    rows = []
    for name, times in seconds.items():
        median = statistics.median(times) / count
        to_vissl, to_filelist = (
            ratio(seconds[peer], times) if peer in seconds else None
            for peer in ("vissl", "vissl_filelist")
        )
        rows.append(
            {
                "pipeline": name,
                "transform": transform,
                "ms_min": 1e3 * min(times) / count,
                "ms_median": 1e3 * median,
                "images_per_s_per_core": 1 / median,
                "ratio_to_vissl": to_vissl,
                "ratio_to_filelist": to_filelist,
                "decode_share": ratio(seconds["decode"], times),
            }
        )
    return rows


def _normalise_ms(folder: Path, rounds: int) -> float:
    from pirl_plugin.vissl.hooks.input import PIRLInputHook

    dataset, collate = our_pipeline(folder, "jigsaw")
    indices = range(min(32, dataset.num_samples()))
    batch = collate([dataset[index] for index in indices])
    views = {name: batch[name][0] for name in ("patches", "images")}
    hook = PIRLInputHook()
    (seconds,) = interleave(
        {"normalise": lambda: hook.prepare(views)}, rounds, clock=time.process_time
    ).values()
    return 1e3 * statistics.median(seconds) / len(indices)


def _normalised(read: Callable[[], Any]) -> Callable[[], Any]:
    """``read``, and what the input hook does with the batch's views."""
    from pirl_plugin.vissl.hooks.input import PIRLInputHook

    prepare = PIRLInputHook().prepare

    def normalised() -> None:
        for views in read().values():
            prepare(views[0])

    return normalised


def _batch(dataset: Any, collate: Callable[..., Any]) -> Callable[[], Any]:
    indices = range(dataset.num_samples())
    return lambda: collate([dataset[index] for index in indices])
