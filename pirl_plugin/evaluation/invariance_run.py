"""Distances of embeddings of images and of their transformed versions, of each checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict

import torch
from torch import Tensor

from pirl_plugin.checkpoints.read import check_is_file
from pirl_plugin.checkpoints.training_run import images_digest, run_config
from pirl_plugin.evaluation.invariance import (
    Distances,
    invariance_distances,
    summarize_distances,
)
from pirl_plugin.evaluation.pretext_checkpoint import (
    has_transformed_images,
    load_pretext_model,
    view_size_of,
)
from pirl_plugin.evaluation.pretext_embeddings import embed, sample_rows, with_own_statistics
from pirl_plugin.images.folders import find_images

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pirl_plugin.evaluation.invariance import DistanceSummary
    from pirl_plugin.evaluation.pretext_model import PretextModel


Kind = Literal["heads", "own_statistics", "bank"]
"""What g(v_It) is compared with: f(v_I), the same with BatchNorm's statistics of each kind of input
apart, or the rows of the memory bank."""


class Comparison(TypedDict):
    """Distances of an image to its own transformed versions, and to those of others."""

    same: DistanceSummary
    different: DistanceSummary


class ModelDistances(TypedDict):
    """The distances of one checkpoint; ``bank_note`` says why ``bank`` is None, or in doubt."""

    name: str
    checkpoint: str
    representation: str
    heads: Comparison
    own_statistics: Comparison
    bank: Comparison | None
    bank_note: str | None


class InvarianceResults(TypedDict):
    """What ``invariance.json`` holds."""

    data: str
    images: int
    transforms: int
    seed: int
    models: list[ModelDistances]


def measure_invariance(
    checkpoints: Sequence[Path],
    data: Path,
    *,
    images: int = 1000,
    transforms: int = 4,
    seed: int = 0,
    image_size: int | None = None,
    device: str | None = None,
    trust_pickle: bool = False,
) -> InvarianceResults:
    """The distances of each checkpoint on the same images.

    Args:
        checkpoints: files of one or more models.
        data: folder of images.
        images: number of them, drawn at random from the folder.
        transforms: transformed versions of each image.
        seed: of images and transforms.
        image_size: side of the image view, pixels, of a run without one; None: another run's, or
            224.
        device: None: a GPU where there is one.
        trust_pickle: run the code in a file if torch's safe loading refuses it.

    Returns:
        ``data``, ``images``, ``transforms``, ``seed`` and ``models``: of each its ``name``,
        ``checkpoint``, ``representation``, ``heads``: the summaries of ``same`` and ``different``,
        ``own_statistics``: the same with BatchNorm's statistics of images and of transformed images
        apart, as the loss saw them, and ``bank``: the same of the memory bank's rows, matched by
        path, or None; ``bank_note`` says why, or which images had no row.

    Raises:
        FileNotFoundError: a checkpoint or the folder does not exist.
        ValueError: a checkpoint is named twice, or holds no whole ResNet, or there are fewer than
            two images, or shards.
    """
    if not data.is_dir():
        raise FileNotFoundError(
            f"--data = {data}: expected a folder of images; there is no such folder"
        )
    for checkpoint in checkpoints:
        check_is_file(checkpoint)
    names = _names(checkpoints)
    paths = list(find_images(str(data)))
    rows = sample_rows(len(paths), images, seed)
    configs = [run_config(checkpoint) for checkpoint in checkpoints]
    with_size = [config for config in configs if view_size_of(config)]
    transformed_too = filter(has_transformed_images, with_size)
    other = next(transformed_too, next(iter(with_size), None))
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    loaded = [  # all of them before one is measured, which takes minutes
        load_pretext_model(checkpoint, trust_pickle, other, device, image_size)
        for checkpoint in checkpoints
    ]
    models: list[ModelDistances] = []
    for name, checkpoint, model in zip(names, checkpoints, loaded, strict=True):
        image, transformed, kept = embed(model, data, paths, rows, transforms, seed, name)
        bank, note = _to_bank(model, transformed, kept, data, paths)
        own = with_own_statistics(model, data, paths, kept, seed)
        title = f"{name}, own statistics"
        own_image, own_transformed, _ = embed(own, data, paths, kept, transforms, seed, title)
        models.append(
            {
                "name": name,
                "checkpoint": str(checkpoint.resolve()),
                "representation": model.representation,
                "heads": _summaries(invariance_distances(image, transformed)),
                "own_statistics": _summaries(invariance_distances(own_image, own_transformed)),
                "bank": _summaries(bank) if bank else None,
                "bank_note": note,
            }
        )
    return {
        "data": str(data.resolve()),
        "images": len(kept),
        "transforms": transforms,
        "seed": seed,
        "models": models,
    }


def _to_bank(
    model: PretextModel, transformed: Tensor, rows: list[int], folder: Path, paths: list[str]
) -> tuple[Distances | None, str | None]:
    """Distances of g(v_It) to the image's row and to other rows; why there are none, or a doubt.

    Args:
        model: of the checkpoint.
        transformed: ``(N, T, D)``, embeddings.
        rows: of ``paths``, the N images.
        folder: of all images.
        paths: of all images, relative to the folder.
    """
    bank, note = model.bank, None
    if bank is None:
        return None, (
            "none in the checkpoint, nor shards of one in the folder memory_bank beside it, or no "
            "head g to compare it with"
        )
    if len(bank) != len(paths) or model.images not in (None, images_digest(paths, str(folder))):
        return None, (
            f"its {len(bank)} rows are of other images than the {len(paths)} of --data: give the "
            f"folder of the pre-training"
        )
    if model.images is None:
        note = "the checkpoint does not say which image a row is of; taken in order"
    return invariance_distances(bank[rows], transformed), note


def _summaries(distances: Distances) -> Comparison:
    return {
        "same": summarize_distances(distances.same),
        "different": summarize_distances(distances.different),
    }


def _names(checkpoints: Sequence[Path]) -> list[str]:
    """Distinct names, as short as may be: of the folders, or of files where some share a folder."""
    paths = [checkpoint.resolve() for checkpoint in checkpoints]
    named = [path.parent for path in paths]
    for longer in ([path.with_suffix("") for path in paths], paths):
        if len(set(named)) < len(named):
            named = longer
    for depth in range(1, max(len(path.parts) for path in named) + 1):
        names = [str(Path(*path.parts[-depth:])) for path in named]
        if len(set(names)) == len(names):
            return names
    twice = next(path for path in paths if paths.count(path) > 1)
    raise ValueError(f"--checkpoint names {twice} twice: expected each model once; leave one out")
