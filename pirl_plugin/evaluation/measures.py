"""What shows whether embeddings learn or collapse, from embeddings and rows of the bank alone.

Plain functions for any training loop; :func:`measure_bank` takes them together. Each
raises a ``ValueError`` for features that are not (images, dimensions), or not finite.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pirl_plugin.estimators import at_least_float32
from pirl_plugin.evaluation.knn import leave_one_out_accuracy

if TYPE_CHECKING:
    from collections.abc import Mapping

LINE_KEY = "PIRL_MONITOR"  # of the line in stdout.json that holds an epoch's measures

_T = 2.0  # of the Gaussian kernel of uniformity, as in the paper


@torch.no_grad()
def effective_rank(features: Tensor) -> float:
    """RankMe: the exponential of the entropy of the normalised singular values.

    Garrido et al. 2023, Eq. 1 (https://arxiv.org/abs/2210.02885). 1: all features lie on a line;
    min(N, D): they fill the space evenly.

    Args:
        features: (N, D) floating, on any device.

    Returns:
        A number from 1 to min(N, D); 0 where all features are 0.

    Example:
        >>> round(effective_rank(torch.eye(4)), 4), round(effective_rank(torch.ones(4, 4)), 4)
        (4.0, 1.0)
    """
    _check(features)
    # The squared singular values are eigenvalues of the (D, D) matrix: quick for many rows.
    features = features.double()
    gram = features.T @ features if len(features) > features.shape[1] else features @ features.T
    values = torch.linalg.eigvalsh(gram.cpu()).clamp(min=0).sqrt()
    # What float64 leaves of singular values that are 0 would count as so many small ones.
    values = values.masked_fill(values < 1e-7 * values.max(), 0)
    if not values.any():
        return 0.0
    shares = values / values.sum()
    return float(torch.special.entr(shares).sum().exp())


@torch.no_grad()
def uniformity(features: Tensor, t: float = _T, chunk: int = 512) -> float:
    """Mean of exp(−t‖x − y‖²) over all pairs, its log: how evenly features lie on the sphere.

    Wang & Isola 2020, Sec. 4.1.2 (https://arxiv.org/abs/2005.10242). 0: all are equal; about −2t
    for features spread evenly over a sphere of many dimensions.

    Args:
        features: (N, D) floating, N of at least 2; normalised here.
        t: of the Gaussian kernel.
        chunk: rows that are compared at once.

    Example:
        >>> round(uniformity(torch.tensor([[1.0, 0.0], [-1.0, 0.0]])), 4)  # distance 2
        -8.0
    """
    _check(features, rows=2)
    unit = _unit(features)
    total = torch.zeros((), dtype=torch.float64, device=unit.device)
    for part in unit.split(chunk):
        # ‖x − y‖² = 2 − 2 x·y of unit vectors, without the minus of rounding below 0
        squared = (2 - 2 * part @ unit.T).clamp(min=0)
        total += squared.mul_(-t).exp_().sum(dtype=torch.float64)
    total -= len(unit)  # a row and itself are no pair; each of them added exp(0)
    return float((total / (len(unit) * (len(unit) - 1))).log())


@torch.no_grad()
def alignment(first: Tensor, second: Tensor, alpha: float = 2.0) -> float:
    """Mean of ‖x − y‖^α over pairs of views of an image: how near they are.

    Wang & Isola 2020, Sec. 4.1.1 (https://arxiv.org/abs/2005.10242). 0: they are equal; 2 (for
    α = 2): they are orthogonal, as random ones of many dimensions are.

    Args:
        first: (N, D) floating, for instance f(v_I); normalised here.
        second: (N, D), of the same images, for instance g(v_It).
        alpha: the power.

    Example:
        >>> alignment(torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 1.0]]))
        2.0
    """
    _check_pair(first, second)
    squared = 2 - 2 * (_unit(first) * _unit(second)).sum(dim=1)
    return float(squared.clamp(min=0).pow(alpha / 2).mean())


@torch.no_grad()
def mean_cosine(first: Tensor, second: Tensor) -> float:
    """Mean cosine of pairs, row by row: of embeddings and their rows of the bank, say.

    Args:
        first: (N, D) floating, on any device.
        second: (N, D).

    Example:
        >>> mean_cosine(torch.tensor([[2.0, 0.0]]), torch.tensor([[3.0, 0.0]]))
        1.0
    """
    _check_pair(first, second)
    return float((_unit(first) * _unit(second)).sum(dim=1).mean())


@torch.no_grad()
def mean_cosine_of_all(first: Tensor, second: Tensor) -> float:
    """Mean cosine of each of ``first`` with each of ``second``: of different images, say.

    Args:
        first: (N, D) floating, on any device.
        second: (M, D).

    Example:
        >>> mean_cosine_of_all(torch.eye(2), torch.eye(2))
        0.5
    """
    for features in (first, second):
        _check(features)
    _check_width(first, second)
    return float(_unit(first).mean(dim=0) @ _unit(second).mean(dim=0))


@torch.no_grad()
def score_spread(embeddings: Tensor, rows: Tensor) -> float:
    """How much the scores of a row differ between images: the deviation of cos(f, m) over f.

    Root of the mean, over rows m, of the variance over images of cos(f, m). 0: every image has the
    same embedding, and no row tells one from another; 1/√D: that of random unit vectors.

    Args:
        embeddings: (N, D) floating, N of at least 2.
        rows: (M, D), of the memory bank.

    Example:
        >>> score_spread(torch.ones(3, 2), torch.eye(2))
        0.0
    """
    _check(embeddings, rows=2)
    _check(rows)
    _check_width(embeddings, rows)
    unit, table = _unit(embeddings), _unit(rows)
    centred = unit - unit.mean(dim=0)
    # Σ_nm (c_n · m_m)² = tr(CᵀC MᵀM): products of size D × D, not N × M
    total = ((centred.T @ centred) * (table.T @ table)).sum().clamp(min=0)
    return float((total / (len(unit) * len(table))).sqrt())


def random_uniformity(dim: int) -> float:
    """:func:`uniformity` with t = 2, expected of unit vectors spread evenly over the sphere.

    The mean of exp(2t·x·y) over the sphere is 0F1(; D/2; t²), a series.

    Args:
        dim: D.

    Example:
        >>> round(random_uniformity(128), 3)
        -3.938
    """
    term = total = 1.0
    for i in range(200):
        term *= _T * _T / ((i + 1) * (dim / 2 + i))
        total += term
    return math.log(total) - 2 * _T


@functools.lru_cache(maxsize=8)
def random_effective_rank(count: int, dim: int) -> float:
    """:func:`effective_rank` of ``count`` random unit vectors of ``dim``; measured once."""
    return effective_rank(
        _unit(torch.randn(count, dim, generator=torch.Generator().manual_seed(0)))
    )


class Measure(NamedTuple):
    """A value, and what it would be by chance.

    Attributes:
        value: as measured.
        chance: of embeddings that know nothing, see :func:`measure_bank`.
    """

    value: float
    chance: float


@torch.no_grad()
def measure_bank(
    rows: Tensor,
    labels: Tensor | None = None,
    f: Tensor | None = None,
    g: Tensor | None = None,
    m: Tensor | None = None,
    k: int = 20,
) -> dict[str, Measure]:
    """All measures that the given tensors allow, each beside its chance.

    Chance is the share of the most frequent class for the kNN; what random unit vectors in the
    place of the rows would give for effective rank, uniformity and spread; and for alignment and
    cosines, what they are with other images.

    Args:
        rows: (N, D) floating, rows of the memory bank, a sample where it is large.
        labels: (N,) int64, classes of these rows' images. Of one class, there is no kNN.
        f: (B, D), embeddings f(v_I) of some images, those of the last steps, say.
        g: (B, D), embeddings g(v_It) of the same images.
        m: (B, D), their rows of the bank.
        k: neighbours of the kNN.

    Returns:
        By name: ``knn_top1`` (percent), ``effective_rank``, ``uniformity``, ``alignment``,
        ``cos_f_m``, ``cos_g_m`` and ``score_spread``, as far as their tensors are given.

    Raises:
        ValueError: a tensor's shape does not fit, or it is not finite.

    Example:
        >>> bank = torch.nn.functional.normalize(torch.arange(12.0).reshape(4, 3))
        >>> measured = measure_bank(bank, labels=torch.tensor([0, 0, 1, 1]), k=1)
        >>> measured["knn_top1"].chance, list(measured)
        (50.0, ['knn_top1', 'effective_rank', 'uniformity'])
    """
    found: dict[str, Measure] = {}
    if labels is not None:
        accuracy = leave_one_out_accuracy(rows, labels, k)  # which checks them
        counts = labels.unique(return_counts=True)[1]
        if len(counts) > 1:  # of one class, every guess is right
            found["knn_top1"] = Measure(accuracy, 100 * float(counts.max()) / len(labels))
    found["effective_rank"] = Measure(effective_rank(rows), random_effective_rank(*rows.shape))
    found["uniformity"] = Measure(uniformity(rows), random_uniformity(rows.shape[1]))
    if f is not None and g is not None:
        found["alignment"] = Measure(alignment(f, g), _alignment_of_others(f, g))
    if m is not None:
        for name, embedding in (("cos_f_m", f), ("cos_g_m", g)):
            if embedding is not None:
                others = mean_cosine_of_all(embedding, rows)
                found[name] = Measure(mean_cosine(embedding, m), others)
    if f is not None and len(f) > 1:
        found["score_spread"] = Measure(score_spread(f, rows), rows.shape[1] ** -0.5)
    return found


def collapse(measured: Mapping[str, Measure]) -> str | None:
    """Say in a sentence that the embeddings have collapsed, where they have.

    They have where the effective rank of the rows is within a hundredth of the way from its floor,
    1, to that of random vectors, or the spread of the scores below a hundredth of theirs.

    Args:
        measured: as :func:`measure_bank` returns it.

    Example:
        >>> collapse(measure_bank(torch.eye(4))) is None
        True
        >>> collapse(measure_bank(torch.ones(4, 4))).split(":")[:2]
        ['the embeddings have collapsed', ' effective rank 1, floor 1, random 3.76']
    """
    signs = []
    for name, words, floor in (
        ("effective_rank", "effective rank", 1.0),
        ("score_spread", "spread of scores", 0.0),
    ):
        value, chance = measured.get(name, (1.0, 0.0))
        if not value > floor + 0.01 * (chance - floor):
            signs.append(f"{words} {value:.3g}, floor {floor:.3g}, random {chance:.3g}")
    if not signs:
        return None
    return (
        f"the embeddings have collapsed: {'; '.join(signs)}: most images look the same to the "
        f"network; lower the learning rate, begin with bank.init = embeddings, or look at the "
        f"images"
    )


def _alignment_of_others(f: Tensor, g: Tensor) -> float:
    """Mean of ‖x − y‖² over all pairs of two different images; their own where there is one."""
    count = len(f)
    if count == 1:
        return alignment(f, g)
    cosine = (count * mean_cosine_of_all(f, g) - mean_cosine(f, g)) / (count - 1)
    return 2 - 2 * cosine


def _unit(features: Tensor) -> Tensor:
    """Unit-norm rows, in float32 or wider."""
    return normalize(at_least_float32(features), dim=1)


def _check(features: Tensor, rows: int = 1) -> None:
    if features.ndim != 2 or len(features) < rows or not features.is_floating_point():
        raise ValueError(
            f"features have shape {tuple(features.shape)} and dtype {features.dtype}: expected "
            f"floating (images, dimensions) with at least {rows}; flatten each image's features"
        )
    if not features.isfinite().all():
        raise ValueError("features are not finite: expected numbers; look where they come from")


def _check_width(first: Tensor, second: Tensor) -> None:
    if first.shape[1] != second.shape[1]:
        raise ValueError(
            f"features have {first.shape[1]} and {second.shape[1]} dimensions: expected as many "
            f"of both; give those of one model"
        )


def _check_pair(first: Tensor, second: Tensor) -> None:
    _check(first)
    _check(second)
    if first.shape != second.shape:
        raise ValueError(
            f"features have shapes {tuple(first.shape)} and {tuple(second.shape)}: expected those "
            f"of the same images, one shape; give both of one batch"
        )
