"""Measures that show whether embeddings learn or collapse, for embeddings and memory bank rows.

The functions work in any training loop. :func:`measure_bank` computes all of them. Each raises a
``ValueError`` if features are not finite, or do not have the shape (images, dimensions).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pirl_plugin.evaluation.knn import leave_one_out_accuracy, unit_rows
from pirl_plugin.images.classes import NO_CLASS
from pirl_plugin.method.estimators import at_least_float32
from pirl_plugin.system.failures import Refused

LINE_KEY = "PIRL_MONITOR"  # key for an epoch's measures in stdout.json


@torch.no_grad()
def effective_rank(features: Tensor) -> float:
    """Compute RankMe: exp(entropy) of the normalized singular values.

    Garrido et al. 2023, Eq. 1 (https://arxiv.org/abs/2210.02885). It is 1 if all features lie
    on a line, and min(N, D) if they fill the space evenly.

    Args:
        features: (N, D) floating, on any device.

    Returns:
        A number from 1 to min(N, D); 0 if all features are 0.

    Example:
        >>> round(effective_rank(torch.eye(4)), 4), round(effective_rank(torch.ones(4, 4)), 4)
        (4.0, 1.0)
    """
    _unit(features)  # checks the shape and values
    # The squared singular values are eigenvalues of a (D, D) matrix, which is fast for many rows.
    features = features.double()
    gram = features.T @ features if len(features) > features.shape[1] else features @ features.T
    values = torch.linalg.eigvalsh(gram.cpu()).clamp(min=0).sqrt()
    # In float64, zero singular values become tiny numbers; many of these would add up.
    values = values.masked_fill(values < 1e-7 * values.max(), 0)
    if not values.any():
        return 0.0
    shares = values / values.sum()
    return float(torch.special.entr(shares).sum().exp())


@torch.no_grad()
def uniformity(features: Tensor, chunk: int = 512) -> float:
    """Compute log mean exp(−2‖x − y‖²) over all pairs: how evenly features spread.

    Wang & Isola 2020, Sec. 4.1.2 (https://arxiv.org/abs/2005.10242). It is 0 if all features
    are equal, and about −4 if they spread evenly over a high-dimensional sphere.

    Args:
        features: (N, D) floating, N at least 2; normalized here.
        chunk: rows at a time.

    Example:
        >>> round(uniformity(torch.tensor([[1.0, 0.0], [-1.0, 0.0]])), 4)  # distance 2
        -8.0
    """
    unit = _unit(features, num_rows=2)
    total = torch.zeros((), dtype=torch.float64, device=unit.device)
    for part in unit.split(chunk):
        # For unit vectors ‖x − y‖² = 2 − 2 x·y; rounding may make it negative
        squared = (2 - 2 * part @ unit.T).clamp(min=0)
        total += squared.mul_(-2).exp_().sum(dtype=torch.float64)
    total -= len(unit)  # remove the pairs of a row with itself, exp(0) each
    return float((total / (len(unit) * (len(unit) - 1))).log())


@torch.no_grad()
def alignment(first: Tensor, second: Tensor) -> float:
    """Compute the mean ‖x − y‖² over pairs of views: how close an image's views are.

    Wang & Isola 2020, Sec. 4.1.1 (https://arxiv.org/abs/2005.10242). It is 0 if they are equal,
    and 2 if they are orthogonal, like high-dimensional random vectors.

    Args:
        first: (N, D) floating, for instance f(v_I); normalized here.
        second: (N, D), for the same images, for instance g(v_It).

    Example:
        >>> alignment(torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 1.0]]))
        2.0
    """
    squared = 2 - 2 * (_unit(first) * _unit(second, first.shape)).sum(dim=1)
    return float(squared.clamp(min=0).mean())


def paired_gain(is_right: Tensor, reference: Tensor) -> tuple[float, float]:
    """Return the gain in accuracy over a reference on the same images, and its uncertainty.

    The two answers for an image are a pair. Images that both classify correctly, or both wrongly,
    carry no information about the gain (McNemar 1947). The interval is the normal approximation for
    a difference between paired proportions, with the continuity correction 1 / N (Fleiss 1981,
    Sec. 8.1).

    Args:
        is_right: bool (N,), whether each test image is classified correctly.
        reference: bool (N,), the same for the reference.

    Returns:
        The gain, and half the width of its 95 % interval, in percentage points.

    Example:
        >>> right = torch.tensor([True] * 60 + [False] * 40)
        >>> reference = torch.tensor([True] * 50 + [False] * 50)
        >>> [round(value, 2) for value in paired_gain(right, reference)]
        [10.0, 6.88]
    """
    difference = is_right.double() - reference.double()  # 1: gained, −1: lost
    gain = float(difference.mean())
    variance = float((difference**2).mean()) - gain**2
    count = len(difference)
    return 100 * gain, 100 * (1.96 * math.sqrt(variance / count) + 1 / count)


class Measure(NamedTuple):
    """A measured value, and the value expected by chance: see :func:`measure_bank`."""

    value: float
    chance: float

    def __repr__(self) -> str:
        return f"{self.value:.1f} (chance {self.chance:.1f})"


@functools.lru_cache(maxsize=8)
def measure_random_rows(count: int, dim: int) -> tuple[float, float]:
    """Return effective rank and uniformity for ``count`` random vectors; the result is cached."""
    rows = torch.randn(count, dim, generator=torch.Generator().manual_seed(0))
    return effective_rank(normalize(rows)), uniformity(rows)


@torch.no_grad()
def measure_bank(
    rows: Tensor, labels: Tensor | None = None, k: int = 20, groups: Tensor | None = None
) -> dict[str, Measure]:
    """Compute measures of memory bank rows, each with the value expected by chance.

    Chance is the frequency of the most common class for kNN, and otherwise the value for random
    vectors.

    Args:
        rows: (N, D) floating, N at least 2: rows of the memory bank, or a sample.
        labels: (N,) int64, class labels for these rows; −1: unlabeled, and excluded from kNN. With
            a single class, kNN is not computed.
        k: number of neighbors for kNN.
        groups: (N,) integers; rows in the same group, such as frames of one video, are not
            neighbors. None: no groups.

    Returns:
        By name: ``knn_top1`` (percent; only with labels), ``effective_rank`` and ``uniformity``.

    Raises:
        ValueError: a tensor has the wrong shape, or is not finite.

    Example:
        >>> bank = torch.nn.functional.normalize(torch.arange(12.0).reshape(4, 3))
        >>> measured = measure_bank(bank, labels=torch.tensor([0, 0, 1, 1]), k=1)
        >>> measured["knn_top1"].chance, list(measured)
        (50.0, ['knn_top1', 'effective_rank', 'uniformity'])
    """
    measures: dict[str, Measure] = {}
    if labels is not None:
        labeled_rows = rows
        has_class = labels != NO_CLASS
        if not has_class.all():
            labeled_rows = rows[has_class]
            labels = labels[has_class]
            groups = None if groups is None else groups[has_class]
        _, counts = labels.unique(return_counts=True)
        accuracy = 0.0
        if len(labels) > 1:
            accuracy = leave_one_out_accuracy(labeled_rows, labels, k, groups=groups)
        if len(counts) > 1:  # with one class, every guess is right
            chance = 100 * float(counts.max() / counts.sum())
            measures["knn_top1"] = Measure(accuracy, chance)
    dimensions = effective_rank(rows)  # checks the shape
    random_rank, random_uniformity = measure_random_rows(*rows.shape)
    measures["effective_rank"] = Measure(dimensions, random_rank)
    measures["uniformity"] = Measure(uniformity(rows), random_uniformity)
    return measures


def collapse(measured: Mapping[str, Measure]) -> str | None:
    """Return a sentence if the embeddings have collapsed, or None.

    They have collapsed if the rows' effective rank exceeds the minimum, 1, by less than a hundredth
    of the distance to random vectors.

    Args:
        measured: from :func:`measure_bank`.

    Example:
        >>> collapse(measure_bank(torch.eye(4))) is None
        True
        >>> collapse(measure_bank(torch.ones(4, 4))).split(",")[0]
        'The embeddings have collapsed to effective rank 1 (random vectors: 3.76)'
    """
    rank, random_rank = measured["effective_rank"]
    if rank > 1 + 0.01 * (random_rank - 1):
        return None
    return (
        f"The embeddings have collapsed to effective rank {rank:.3g} (random vectors: "
        f"{random_rank:.3g}), so most images look the same to the network. Lower the learning "
        f"rate, start with bank.init = embeddings, or check the images."
    )


def _unit(features: Tensor, shape: Sequence[int] | None = None, num_rows: int = 1) -> Tensor:
    """Return unit-norm rows in float32 or wider, after checking the shape and values."""
    if features.ndim != 2 or features.shape != (shape or features.shape):
        raise Refused(
            f"features have shape {tuple(features.shape)}: expected (images, dimensions), the same "
            f"for both tensors if there are two. Flatten each image's features."
        )
    if len(features) < num_rows:
        raise Refused(f"features have {len(features)} rows: expected at least {num_rows}")
    return unit_rows(at_least_float32(features))
