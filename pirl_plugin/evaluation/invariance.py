"""Invariance of embeddings to the pretext transform: the distances of Sec. 4.1, Fig. 4."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize
from tqdm import tqdm

from pirl_plugin.checkpoints.training_run import run_config
from pirl_plugin.evaluation.features import evenly_spaced
from pirl_plugin.evaluation.pretext_model import (
    PretextModel,
    has_transformed_images,
    load_pretext_model,
)
from pirl_plugin.failures import Refused
from pirl_plugin.images.sources import FolderSource, ImageSource

LARGEST = 2.0  # distance of two opposite unit vectors
_FOR_STATISTICS = 256  # images for BatchNorm's statistics of each kind of input


def unit_distances(image: Tensor, transformed: Tensor) -> Tensor:
    """Compute ‖f/‖f‖ − g/‖g‖‖ (Fig. 4).

    Args:
        image: ``(…, D)`` floating, f(v_I); need not be normalised.
        transformed: ``(…, D)`` floating, g(v_It); the shapes are broadcast.

    Returns:
        float32 ``(…)``, 0 to 2. √(2 − 2 cos) is the same value, but less exact near 0.

    Example:
        >>> unit_distances(torch.tensor([3.0, 0.0]), torch.tensor([0.0, 5.0]))
        tensor(1.4142)
    """
    return (normalize(image.float(), dim=-1) - normalize(transformed.float(), dim=-1)).norm(dim=-1)


def invariance_distances(image: Tensor, transformed: Tensor) -> tuple[Tensor, Tensor]:
    """Compute distances of images to their own transformed versions, and to other images' versions.

    The other image is N // 2 rows away, because neighbours in a folder mostly have the same class.

    Args:
        image: ``(N, D)`` floating, one embedding of each image.
        transformed: ``(N, T, D)`` floating, T transformed versions of each image.

    Returns:
        float32 ``(N·T,)`` for the same image and ``(N·T,)`` for different images, 0 to 2.
    """
    other = transformed.roll(len(image) // 2, dims=0)
    own, different = (unit_distances(image[:, None], x).flatten() for x in (transformed, other))
    return own, different


def summarize_distances(distances: Tensor, bins: int = 50) -> dict[str, Any]:
    """Return mean, deviation, quartiles, and the density in ``bins`` equal parts of [0, 2].

    Example:
        >>> summary = summarize_distances(torch.tensor([0.5, 1.5]), bins=4)
        >>> summary["mean"], summary["density"]
        (1.0, [0.0, 1.0, 0.0, 1.0])
    """
    counts = torch.histc(distances, bins=bins, min=0.0, max=LARGEST)
    low, median, high = distances.quantile(torch.tensor([0.25, 0.5, 0.75])).tolist()
    return {
        "mean": distances.mean().item(),
        "std": distances.std(correction=0).item(),
        "quartile_1": low,
        "median": median,
        "quartile_3": high,
        "density": (counts / (len(distances) * LARGEST / bins)).tolist(),
    }


def measure_invariance(options: argparse.Namespace) -> dict[str, Any]:
    """Measure the distances of each checkpoint on the same images.

    Args:
        options: options of the command.

    Returns:
        The content of ``invariance.json``. For each model, ``heads`` has the summaries ``same``
        and ``different``. ``own_statistics`` has them with separate BatchNorm statistics of images
        and of transformed images, as in training.

    Raises:
        FileNotFoundError: a checkpoint or the folder does not exist.
        ValueError: a checkpoint holds no complete trunk, or fewer than two images can be read.
    """
    source = FolderSource(options.data)
    count = min(options.images, len(source))
    rows = sorted(
        np.random.default_rng(options.seed).choice(len(source), count, replace=False).tolist()
    )
    configs = map(run_config, options.checkpoint)
    other = next((config for config in configs if has_transformed_images(config)), None)
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    loaded = [  # load all before the first measurement, which takes minutes
        load_pretext_model(path, options.trust_pickle, other, device, options.size)
        for path in options.checkpoint
    ]
    names, models = [path.resolve().parent.name for path in options.checkpoint], []
    if len(set(names)) < len(names):
        names = list(map(str, options.checkpoint))
    for name, path, model in zip(names, options.checkpoint, loaded, strict=True):
        some = [rows[i] for i in evenly_spaced(len(rows), _FOR_STATISTICS)]
        drawn = list(_views(model, source, some, 1, options.seed))
        if len(drawn) < 2:
            raise Refused(
                f"--data = {options.data}: expected images that can be read; look at the log"
            )
        crops, versions = (torch.stack(part) for part in zip(*drawn, strict=True))
        kinds = {"heads": model, "own_statistics": model.with_own_statistics(crops, versions[:, 0])}
        parts: dict[str, list[tuple[Tensor, Tensor]]] = {kind: [] for kind in kinds}
        progress = tqdm(rows, name, mininterval=2)
        for crop, transformed in _views(model, source, progress, options.transforms, options.seed):
            for kind, of in kinds.items():
                image = of.embed_images(crop[None])[0]
                parts[kind].append((image, of.embed_transformed(transformed)))
        measured: dict[str, Any] = {}
        for kind, found in parts.items():
            distances = invariance_distances(*map(torch.stack, zip(*found, strict=True)))
            pair = map(summarize_distances, distances)
            measured[kind] = dict(zip(("same", "different"), pair, strict=True))
        measured |= {"name": name, "checkpoint": str(path.resolve())}
        measured |= {"representation": model.representation, "image_size": model.views.image_size}
        models.append(measured)
    return {
        "data": str(options.data.resolve()),
        "images": len(found),
        "transforms": options.transforms,
        "seed": options.seed,
        "models": models,
    }


def _views(
    model: PretextModel, source: ImageSource, rows: Iterable[int], count: int, seed: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield uint8 ``(3, S, S)`` and ``(count, P, 3, h, w)`` for each readable image."""
    for row in rows:
        pixels, valid = source[row]
        if valid:
            yield model.views_of(pixels, row, count, seed)
