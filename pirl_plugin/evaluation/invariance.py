"""How invariant embeddings are to the pretext transform: the distances of Sec. 4.1, Fig. 4."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

import torch
from torch import Tensor
from torch.nn.functional import normalize

LARGEST = 2.0  # distance of two opposite unit vectors


@dataclass(frozen=True)
class Distances:
    """Distances between unit vectors, each from 0 (equal) to 2 (opposite).

    Attributes:
        same: ``(N·T,)``: of each image and its own transformed versions.
        different: ``(N·T,)``: of each image and transformed versions of another image.
    """

    same: Tensor
    different: Tensor


def unit_distances(image: Tensor, transformed: Tensor) -> Tensor:
    """‖f/‖f‖ − g/‖g‖‖ (Fig. 4).

    Args:
        image: ``(…, D)`` floating, f(v_I) or rows of the memory bank; need not be normalised.
        transformed: ``(…, D)`` floating, g(v_It); the shapes are broadcast.

    Returns:
        float32 ``(…)``, 0 to 2. √(2 − 2 cos) is the same, less exactly near 0.

    Example:
        >>> unit_distances(torch.tensor([3.0, 0.0]), torch.tensor([0.0, 5.0]))
        tensor(1.4142)
    """
    return (normalize(image.float(), dim=-1) - normalize(transformed.float(), dim=-1)).norm(dim=-1)


def invariance_distances(image: Tensor, transformed: Tensor) -> Distances:
    """Distances of images to their own transformed versions, and to those of other images.

    Each image is paired with the versions of another too, so that both sets have N·T distances. In
    the order of a folder the next image is mostly of the same class: the other is N // 2 rows away.

    Args:
        image: ``(N, D)`` floating, one embedding of each image.
        transformed: ``(N, T, D)`` floating, T transformed versions of each image.

    Raises:
        ValueError: the shapes do not match, or there are fewer than two images.
    """
    if image.ndim != 2 or transformed.ndim != 3 or len(image) != len(transformed):
        raise ValueError(
            f"image {tuple(image.shape)} and transformed {tuple(transformed.shape)}: expected "
            f"(N, D) and (N, T, D); give as many images as rows of transformed versions"
        )
    if len(image) < 2:
        raise ValueError(f"{len(image)} image: expected at least 2, to compare different images")
    other = transformed.roll(len(image) // 2, dims=0)
    return Distances(
        same=unit_distances(image[:, None], transformed).flatten(),
        different=unit_distances(image[:, None], other).flatten(),
    )


class DistanceSummary(TypedDict):
    """Of l2 distances of unit vectors; ``density`` is over equal parts of [0, 2]."""

    mean: float
    std: float
    quartile_1: float
    median: float
    quartile_3: float
    density: list[float]


def summarize_distances(distances: Tensor, bins: int = 50) -> DistanceSummary:
    """Mean, standard deviation, quartiles, and the density over ``bins`` equal parts of [0, 2].

    Example:
        >>> summary = summarize_distances(torch.tensor([0.5, 1.5]), bins=4)
        >>> summary["mean"], summary["density"]
        (1.0, [0.0, 1.0, 0.0, 1.0])
    """
    counts = torch.histc(distances, bins=bins, min=0.0, max=LARGEST)
    density = counts / (len(distances) * LARGEST / bins)
    low, median, high = distances.quantile(torch.tensor([0.25, 0.5, 0.75])).tolist()
    return {
        "mean": distances.mean().item(),
        "std": distances.std(correction=0).item(),
        "quartile_1": low,
        "median": median,
        "quartile_3": high,
        "density": density.tolist(),
    }
