"""Invariance to the pretext transform: the distances in Sec. 4.1, Fig. 4."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import torch
from pretext_model import PretextModel, has_transformed_images, load_pretext_model
from run_config import run_config
from torch import Tensor
from torch.nn.functional import normalize

from pirl_plugin.images.folders import FolderSource
from pirl_plugin.images.source import ImageSource, evenly_spaced
from pirl_plugin.system.arguments import usable_device
from pirl_plugin.system.console import Progress
from pirl_plugin.system.failures import Refused

LARGEST = 2.0  # distance between two opposite unit vectors
_FOR_STATISTICS = 256  # images for separate BatchNorm statistics


def unit_distances(image: Tensor, transformed: Tensor) -> Tensor:
    """Compute ‖f/‖f‖ − g/‖g‖‖ (Fig. 4).

    Args:
        image: ``(…, D)`` floating, f(v_I); need not be normalized.
        transformed: ``(…, D)`` floating, g(v_It); the shapes are broadcast.

    Returns:
        float32 ``(…)``, 0 to 2. √(2 − 2 cos) is the same value, but less exact near 0.

    Example:
        >>> unit_distances(torch.tensor([3.0, 0.0]), torch.tensor([0.0, 5.0]))
        tensor(1.4142)
    """
    return (normalize(image.float(), dim=-1) - normalize(transformed.float(), dim=-1)).norm(dim=-1)


def invariance_distances(image: Tensor, transformed: Tensor) -> tuple[Tensor, Tensor]:
    """Compute distances from images to their own transformed versions, and to other images'.

    The other image is N // 2 rows away, because neighbors in a folder mostly share a class.

    Args:
        image: ``(N, D)`` floating, one embedding per image.
        transformed: ``(N, T, D)`` floating, T transformed versions of each image.

    Returns:
        float32 ``(N·T,)`` for the same image and ``(N·T,)`` for different images, 0 to 2.
    """
    of_another_image = transformed.roll(len(image) // 2, dims=0)
    same = unit_distances(image[:, None], transformed)
    different = unit_distances(image[:, None], of_another_image)
    return same.flatten(), different.flatten()


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
    """Measure the distances for each checkpoint on the same images.

    Args:
        options: options of the command.

    Returns:
        The content for ``invariance.json``. For each model, ``heads`` has the summaries ``same``
        and ``different``. ``own_statistics`` has them with separate BatchNorm statistics for images
        and transformed images, as in training.

    Raises:
        FileNotFoundError: a checkpoint or the folder does not exist.
        ValueError: a checkpoint holds no complete trunk, or fewer than two images are readable.
    """
    # The same images for all checkpoints.
    source = FolderSource(options.data)
    count = min(options.images, len(source))
    rng = np.random.default_rng(options.seed)
    rows = sorted(rng.choice(len(source), count, replace=False).tolist())
    configs = [run_config(path) for path in options.checkpoint]
    # Runs without transformed images (NPID) use another run's.
    with_views = next((config for config in configs if has_transformed_images(config)), None)
    device = usable_device(options.device)
    models = [  # load all before measuring, which takes minutes
        load_pretext_model(
            path,
            other=with_views,
            size=options.size,
            device=device,
            prefix=options.trunk,
            timm=options.timm,
            timm_options=dict(options.timm_option),
        )
        for path in options.checkpoint
    ]
    # A run is named by its folder, unless two folders have the same name.
    names = [path.resolve().parent.name for path in options.checkpoint]
    if len(set(names)) < len(names):
        names = [str(path) for path in options.checkpoint]
    measured = []
    for name, path, model in zip(names, options.checkpoint, models, strict=True):
        config = model.trunk.network_config.with_values("views", size=model.views.image_size)
        print(f"{name}: images at {config}", flush=True)
        images, summaries = _measure_model(name, model, source, rows, options)
        summaries["name"] = name
        summaries["checkpoint"] = str(path.resolve())
        summaries["representation"] = model.representation
        summaries["image_size"] = model.views.image_size
        measured.append(summaries)
    return {
        "data": str(options.data.resolve()),
        "images": images,
        "transforms": options.transforms,
        "seed": options.seed,
        "models": measured,
    }


def _measure_model(
    name: str,
    model: PretextModel,
    source: ImageSource,
    rows: Sequence[int],
    options: argparse.Namespace,
) -> tuple[int, dict[str, Any]]:
    """Return the number of readable images, and the summaries by BatchNorm statistics."""
    # The separate statistics come from a sample of the images.
    sample = [rows[i] for i in evenly_spaced(len(rows), _FOR_STATISTICS)]
    views = list(_views(model, source, sample, 1, options.seed))
    if len(views) < 2:
        raise Refused(f"Fewer than two images in {options.data} are readable. See the log.")
    crops = torch.stack([crop for crop, _ in views])
    versions = torch.stack([version for _, version in views])
    models = {"heads": model, "own_statistics": model.with_own_statistics(crops, versions[:, 0])}

    # Each image's embeddings, with both kinds of statistics.
    embeddings: dict[str, list[tuple[Tensor, Tensor]]] = {kind: [] for kind in models}
    with closing(Progress(name, len(rows))) as progress:
        for crop, transformed in _views(model, source, rows, options.transforms, options.seed):
            for kind, of_kind in models.items():
                image = of_kind.embed_images(crop[None])[0]
                embeddings[kind].append((image, of_kind.embed_transformed(transformed)))
            progress.update(1)

    summaries = {}
    for kind, pairs in embeddings.items():
        same, different = invariance_distances(
            torch.stack([image for image, _ in pairs]),
            torch.stack([transformed for _, transformed in pairs]),
        )
        summaries[kind] = {
            "same": summarize_distances(same),
            "different": summarize_distances(different),
        }
    return len(embeddings["heads"]), summaries


def _views(
    model: PretextModel, source: ImageSource, rows: Iterable[int], count: int, seed: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield uint8 ``(3, S, S)`` and ``(count, P, 3, h, w)`` for each readable image."""
    for row in rows:
        pixels, valid = source[row]
        if valid:
            yield model.views_of(pixels, row, count, seed)
