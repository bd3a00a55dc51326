"""Embeddings of the images of a folder and of transformed versions of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from pirl_plugin.evaluation.features import evenly_spaced
from pirl_plugin.images.decode import UnreadableImageError, decode_image, read_file

if TYPE_CHECKING:
    from pathlib import Path

    from pirl_plugin.evaluation.pretext_model import PretextModel

_AT_ONCE = 64  # transformed images, each of nine patches
_FOR_STATISTICS = 256  # images that BatchNorm's statistics of each kind of input are taken of


def sample_rows(total: int, count: int, seed: int) -> list[int]:
    """``count`` rows of ``total``, drawn without replacement, in order; all where there are fewer.

    Example:
        >>> sample_rows(3, 5, seed=0)
        [0, 1, 2]
    """
    if count >= total:
        return list(range(total))
    chosen = np.random.default_rng(seed).choice(total, count, replace=False)
    return sorted(chosen.tolist())


def embed(
    model: PretextModel,
    folder: Path,
    paths: list[str],
    rows: list[int],
    transforms: int,
    seed: int,
    name: str,
) -> tuple[Tensor, Tensor, list[int]]:
    """Embeddings of images of a folder and of transformed versions of them.

    Args:
        model: of a pre-training.
        folder: of the images.
        paths: of all images in it.
        rows: of ``paths``, of the images.
        transforms: T, versions of each image.
        seed: of the transforms.
        name: of the model, for the progress bar.

    Returns:
        ``(N, D)``, ``(N, T, D)``, and the N rows: those of images that can be read.

    Raises:
        ValueError: fewer than two can be read.
    """
    found: list[Tensor] = []
    versions: list[Tensor] = []
    kept: list[int] = []
    per_batch = max(1, _AT_ONCE // transforms)
    with tqdm(total=len(rows), desc=name, unit=" images", mininterval=2) as bar:
        for start in range(0, len(rows), per_batch):
            batch = rows[start : start + per_batch]
            drawn = _views(model, folder, paths, batch, transforms, seed)
            bar.update(len(batch))
            if drawn is None:
                continue
            images, transformed, readable = drawn
            found.append(model.embed_images(images))
            flat = model.embed_transformed(transformed.flatten(0, 1))
            versions.append(flat.unflatten(0, transformed.shape[:2]))
            kept += readable
    if len(kept) < 2:
        raise ValueError(
            f"--data = {folder}: expected two images or more that can be read, found {len(kept)}; "
            f"give a folder of images"
        )
    return torch.cat(found), torch.cat(versions), kept


def with_own_statistics(
    model: PretextModel, folder: Path, paths: list[str], rows: list[int], seed: int
) -> PretextModel:
    """The model with BatchNorm's statistics of images, and of transformed ones, apart.

    Args:
        model: of the running statistics.
        folder: of the images.
        paths: of all images in it.
        rows: of ``paths``, of images that can be read; 256 of them, or all, are taken.
        seed: of the transforms.

    Raises:
        FileNotFoundError: none can be read any more.
    """
    some = [rows[i] for i in evenly_spaced(len(rows), _FOR_STATISTICS)]
    drawn = _views(model, folder, paths, some, 1, seed)
    if drawn is None:
        raise FileNotFoundError(
            f"--data = {folder}: its images were there a moment ago and cannot be read any more"
        )
    images, transformed, _ = drawn
    return model.with_own_statistics(images, transformed[:, 0])


def _views(
    model: PretextModel, folder: Path, paths: list[str], rows: list[int], count: int, seed: int
) -> tuple[Tensor, Tensor, list[int]] | None:
    """uint8 ``(N, 3, S, S)``, ``(N, count, P, 3, h, w)`` and the N rows; None: none is readable."""
    drawn, readable = [], []
    for row in rows:
        try:
            pixels = decode_image(read_file(str(folder / paths[row])))
        except (OSError, UnreadableImageError):
            continue
        drawn.append(model.views_of(pixels, row, count, seed))
        readable.append(row)
    if not drawn:
        return None
    images, transformed = (torch.stack(part) for part in zip(*drawn, strict=True))
    return images, transformed, readable
