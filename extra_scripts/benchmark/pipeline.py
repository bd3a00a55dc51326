"""From image file to batch: VISSL's own PIRL pipeline, lightly's, ours, and only decoding.

One process with one thread runs all pipelines in turn on the same images, and its CPU time counts.
VISSL builds its data set and ours from a config. Samples are read one by one and collated, as in a
loader worker. VISSL's pipeline ends in normalized float32. Ours ends in bytes, which the model's
device normalizes; ``normalized`` includes this. VISSL decodes each image twice from a folder, and
once from a list (``vissl_filelist``). ``jigsaw_64`` uses the sizes in lightly's ``PIRLTransform``:
a 64-px image and nine 21-px patches. Lightly returns normalized float32; its patches come from the
upper left corner, without resizing or cropping.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from shared import add_data, add_device, add_rounds, new_parser, print_table, report
from timing import interleave, ratio
from torchvision.datasets.folder import IMG_EXTENSIONS, ImageFolder

import pirl_plugin.vissl  # noqa: F401 (it installs the import hook)
from pirl_plugin import ImageDataset, JigsawViews, cli, collate_views, normalize_images
from pirl_plugin.images.folders import FolderSource
from pirl_plugin.quickstart.sample import write_sample_dataset
from pirl_plugin.vissl.host_config import quoted, require_host

_VISSL_PIRL = "pretrain/pirl/pirl_jigsaw_4node_resnet50"  # config= for VISSL's own PIRL


def main(arguments: list[str]) -> None:
    """Run the script."""
    measures = "image file to batch: VISSL's transforms, ours, and only decoding"
    parser = new_parser("pipeline.py", measures)
    add_data(parser, images=64)
    add_device(parser)
    add_rounds(parser, 7)
    options = parser.parse_args(arguments)
    require_host()
    report(run, options)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure and print; return ``rows``, one per pipeline."""
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    with image_folder(options.data, options.images) as folder:
        for transform in ("jigsaw", "rotation", "rotation_jigsaw", "jigsaw_64"):
            rows += _measure(folder, transform, options.rounds, options.device)
    print_table(rows)
    return {"rows": rows}


@contextlib.contextmanager
def image_folder(data: Path | None, count: int) -> Iterator[Path]:
    """Create a temporary folder of links ``all/00000.jpg`` … that VISSL and this plugin can read.

    Args:
        data: a folder of images, with or without subfolders; None for generated 448-px images, with
            about as many pixels as a median ImageNet photo.
        count: maximum number of images, spread evenly over the images found.

    Raises:
        ValueError: there are fewer than two images.
    """
    with tempfile.TemporaryDirectory() as temporary:
        source = data
        if source is None:
            source = Path(temporary, "drawn")
            write_sample_dataset(source, num_train=count, num_val=0, size=448)
        paths = [p for p in FolderSource(source).paths() if p.lower().endswith(IMG_EXTENSIONS)]
        links = Path(temporary, "images", "all")
        links.mkdir(parents=True)
        evenly_spread = np.linspace(0, len(paths) - 1, min(count, len(paths)))
        for number, position in enumerate(evenly_spread):
            path = Path(paths[round(position)]).resolve()
            (links / f"{number:05d}{path.suffix.lower()}").symlink_to(path)
        yield links.parent


def _host_pipeline(name: str, folder: Path, *words: str) -> tuple[Any, Callable[..., Any]]:
    """Build a config's data set and collate function with VISSL."""
    from vissl.data import build_dataset
    from vissl.data.collators import get_collator
    from vissl.utils.hydra_config import compose_hydra_configuration, convert_to_attrdict

    overrides = [f"config={name}", f"config.DATA.TRAIN.DATA_PATHS=[{quoted(folder)}]", *words]
    composed = compose_hydra_configuration(overrides)
    _, config = convert_to_attrdict(composed, dump_config=False)
    train = config.DATA.TRAIN
    collate = get_collator(train.COLLATE_FUNCTION, train.get("COLLATE_FUNCTION_PARAMS") or {})
    return build_dataset(config, "TRAIN"), collate


def _pipelines(folder: Path, transform: str) -> tuple[dict[str, Callable[[], Any]], Any]:
    """Return functions that read the folder as a batch, by name, and our image source."""
    functions: dict[str, Callable[[], Any]] = {}
    # At lightly's sizes, for comparison with lightly; VISSL has no such config.
    if transform == "jigsaw_64":
        views = JigsawViews(image_size=64, patches_crop_size=64, patch_size=21)
        images = ImageDataset(folder, views)
        if importlib.util.find_spec("lightly"):
            from lightly.transforms import PIRLTransform

            dataset = ImageFolder(folder, PIRLTransform())
            functions["lightly"] = _read(dataset, len(dataset), torch.utils.data.default_collate)
        return {"fused": _read(images, len(images), collate_views), **functions}, images.source
    # At the paper's sizes, for comparison with VISSL, which has only the jigsaw.
    dataset, collate = _host_pipeline(f"pretrain/pirl/{transform}_8node", folder)
    count = dataset.num_samples()
    if transform == "jigsaw":
        no_labels = "config.DATA.TRAIN.LABEL_PATHS=[]"
        vissl, stack = _host_pipeline(_VISSL_PIRL, folder, no_labels)
        functions["vissl"] = _read(vissl, count, stack)
        filelist = folder.parent / "images.npy"
        np.save(filelist, sorted(str(path) for path in folder.glob("*/*")))
        from_list = "config.DATA.TRAIN.DATA_SOURCES=[disk_filelist]"
        vissl, _ = _host_pipeline(_VISSL_PIRL, filelist, no_labels, from_list)
        functions["vissl_filelist"] = _read(vissl, count, stack)
    return {"fused": _read(dataset, count, collate), **functions}, dataset.data_objs[0]


def _read(dataset: Any, count: int, collate: Callable[..., Any]) -> Callable[[], Any]:
    return lambda: collate([dataset[index] for index in range(count)])


def _measure(folder: Path, transform: str, rounds: int, device: str) -> list[dict[str, Any]]:
    """Return one row per pipeline; speed ratios are medians over the rounds."""
    functions, source = _pipelines(folder, transform)
    fused = functions["fused"]
    functions["normalised"] = lambda: _normalize(fused(), device)
    functions["decode"] = lambda: [source[index] for index in range(len(source))]
    clock = time.process_time if device == "cpu" else time.perf_counter
    seconds = interleave(functions, rounds, clock=clock)
    rows = []
    for name, times in seconds.items():
        milliseconds = [1e3 * t / len(source) for t in times]
        row = {
            "transform": transform,
            "pipeline": name,
            "ms_min": min(milliseconds),
            "ms_median": statistics.median(milliseconds),
            "images_per_s_per_core": 1e3 / statistics.median(milliseconds),
            "decode_share": ratio(seconds["decode"], times),
        }
        peers = {"vissl": "vissl", "filelist": "vissl_filelist", "lightly": "lightly"}
        for key, peer in peers.items():
            row[f"ratio_to_{key}"] = ratio(seconds[peer], times) if peer in seconds else None
        rows.append(row)
    return rows


def _normalize(batch: Any, device: str) -> None:
    """Move a batch's uint8 views to the device, and normalize them there."""
    for view in batch.values():
        tensor = view[0] if isinstance(view, list) else view  # VISSL puts views in lists
        if tensor.dtype == torch.uint8:
            normalize_images(tensor.to(device))
    if device == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    cli.main(main)
