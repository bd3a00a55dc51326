"""The pictures of the quickstart's report: loss curve, jigsaws, nearest neighbours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from pirl_plugin.data.decode import decode_image
from pirl_plugin.data.paths import find_images
from pirl_plugin.data.random import image_generator
from pirl_plugin.data.views import JigsawViews
from pirl_plugin.evaluation.features import load_trunk, read_images, trunk_features
from pirl_plugin.evaluation.knn import nearest_neighbors
from pirl_plugin.evaluation.quickstart_data import IMAGE_SIZE, Data
from pirl_plugin.evaluation.report import Jigsaw, Neighbors, Report, write_report

if TYPE_CHECKING:
    from numpy.typing import NDArray

_GALLERY, _SHOWN, _NEIGHBORS = 2000, 6, 5


def write_quickstart_report(
    out: Path, data: Data, checkpoints: dict[str, Path], results: dict[str, Any], command: str
) -> None:
    """Write ``report.html`` into ``out`` from a finished run.

    Args:
        out: the run's folder.
        data: the images.
        checkpoints: of ``random`` and ``pirl``.
        results: as in ``results.json``.
        command: what was typed.
    """
    config = (out / "pretrain" / "train_config.yaml").relative_to(out)
    report = Report(
        title="PIRL quickstart",
        results=results,
        loss_curve=_loss_curve(out / "pretrain" / "stdout.json"),
        jigsaws=_jigsaws(data, results["seed"]),
        neighbors=_neighbors(data, checkpoints),
        settings={
            "command": command,
            "Data": f"{data.train.parent.name}/{data.train.name}, {data.num_train} images",
            "Network": "ResNet-10, half width, 64-px images, nine 24-px patches",
            "Engine": f"VISSL, config=pretrain/pirl/quick_jigsaw (in full: {config})",
            "Evaluation": "frozen res5 features: VISSL's linear benchmark; kNN, k = 20, cosine",
            "Seed": str(results["seed"]),
        },
    )
    write_report(out / "report.html", report)


def _loss_curve(log: Path) -> list[tuple[int, float]]:
    """(iteration, loss) from the host's log; a resumed run's later values win."""
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    return sorted({int(e["iter"]): float(e["loss"]) for e in entries}.items())


def _jigsaws(data: Data, seed: int) -> list[Jigsaw]:
    """What the network got to see of a few images, by the settings of the run."""
    views = JigsawViews(image_size=64, patches_crop_size=96, patch_size=24, image_scale=(0.2, 1.0))
    samples = []
    for row, path in _spread(list(find_images(str(data.train))), _SHOWN):
        pixels = decode_image(Path(data.train, path).read_bytes())
        drawn = views(pixels, image_generator(seed, 0, row))
        samples.append((_hwc(pixels), _hwc(drawn["images"]), [_hwc(p) for p in drawn["patches"]]))
    return samples


def _neighbors(data: Data, checkpoints: dict[str, Path]) -> list[Neighbors]:
    """Nearest neighbours of a few images, with the pre-trained and the random trunk."""
    gallery, paths = read_images(data.train, IMAGE_SIZE, limit=_GALLERY)
    queries, names = (gallery, paths)
    if data.val is not None:
        queries, names = read_images(data.val, IMAGE_SIZE)
    shown = [row for row, _ in _spread(names, _SHOWN)]
    found = {}
    for name, checkpoint in checkpoints.items():
        trunk = load_trunk(checkpoint)
        query, others = trunk_features(trunk, queries[shown]), trunk_features(trunk, gallery)
        # Without a val folder the query is in the gallery, and is its own first neighbour.
        ranked = nearest_neighbors(query, others, _NEIGHBORS + 1)
        found[name] = ranked[:, 1:] if data.val is None else ranked[:, :_NEIGHBORS]
    samples = []
    for i, row in enumerate(shown):
        sides: list[Any] = []
        for name in ("pirl", "random"):
            rows = found[name][i].tolist()
            same = [Path(paths[r]).parts[0] == Path(names[row]).parts[0] for r in rows]
            sides += [[_hwc(gallery[r]) for r in rows], same if data.val is not None else []]
        samples.append((_hwc(queries[row]), *sides))
    return samples


def _spread(items: list[str], count: int) -> list[tuple[int, str]]:
    """``count`` items with their positions, evenly spread, from the middle of each share."""
    count = min(count, len(items))
    rows = [(2 * i + 1) * len(items) // (2 * count) for i in range(count)]
    return [(row, items[row]) for row in rows]


def _hwc(image: torch.Tensor) -> NDArray[np.uint8]:
    return np.ascontiguousarray(image.permute(1, 2, 0).numpy())
