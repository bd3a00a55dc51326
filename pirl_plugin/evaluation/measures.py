"""Measures that show whether embeddings learn or collapse, from embeddings and rows of the bank.

They are plain functions for any training loop. :func:`measure_bank` takes all of them. Each raises
a ``ValueError`` for features that are not (images, dimensions), or not finite.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pirl_plugin.estimators import at_least_float32
from pirl_plugin.evaluation.knn import leave_one_out_accuracy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LINE_KEY = "PIRL_MONITOR"  # of the line in stdout.json that holds an epoch's measures


@torch.no_grad()
def effective_rank(features: Tensor) -> float:
    """RankMe: the exponential of the entropy of the normalised singular values.

    Garrido et al. 2023, Eq. 1 (https://arxiv.org/abs/2210.02885). It is 1 where all features lie
    on a line, and min(N, D) where they fill the space evenly.

    Args:
        features: (N, D) floating, on any device.

    Returns:
        A number from 1 to min(N, D); 0 where all features are 0.

    Example:
        >>> round(effective_rank(torch.eye(4)), 4), round(effective_rank(torch.ones(4, 4)), 4)
        (4.0, 1.0)
    """
    _unit(features)  # which checks them
    # The squared singular values are eigenvalues of the (D, D) matrix: quick for many rows.
    features = features.double()
    gram = features.T @ features if len(features) > features.shape[1] else features @ features.T
    values = torch.linalg.eigvalsh(gram.cpu()).clamp(min=0).sqrt()
    # Singular values of 0 are tiny numbers in float64; many of them would count.
    values = values.masked_fill(values < 1e-7 * values.max(), 0)
    if not values.any():
        return 0.0
    shares = values / values.sum()
    return float(torch.special.entr(shares).sum().exp())


@torch.no_grad()
def uniformity(features: Tensor, chunk: int = 512) -> float:
    """Log of the mean of exp(−2‖x − y‖²) over all pairs: how evenly features lie on the sphere.

    Wang & Isola 2020, Sec. 4.1.2 (https://arxiv.org/abs/2005.10242). It is 0 where all features
    are equal, and about −4 where they are spread evenly over a sphere of many dimensions.

    Args:
        features: (N, D) floating, N of at least 2; normalised here.
        chunk: rows that are compared at once.

    Example:
        >>> round(uniformity(torch.tensor([[1.0, 0.0], [-1.0, 0.0]])), 4)  # distance 2
        -8.0
    """
    unit = _unit(features)
    total = torch.zeros((), dtype=torch.float64, device=unit.device)
    for part in unit.split(chunk):
        # ‖x − y‖² = 2 − 2 x·y of unit vectors, without the minus of rounding below 0
        squared = (2 - 2 * part @ unit.T).clamp(min=0)
        total += squared.mul_(-2).exp_().sum(dtype=torch.float64)
    total -= len(unit)  # a row and itself are no pair; each of them added exp(0)
    return float((total / (len(unit) * (len(unit) - 1))).log())


@torch.no_grad()
def alignment(first: Tensor, second: Tensor) -> float:
    """Mean of ‖x − y‖² over pairs of views of an image: how near they are.

    Wang & Isola 2020, Sec. 4.1.1 (https://arxiv.org/abs/2005.10242). It is 0 where they are equal
    and 2 where they are orthogonal, as random vectors of many dimensions are.

    Args:
        first: (N, D) floating, for instance f(v_I); normalised here.
        second: (N, D), of the same images, for instance g(v_It).

    Example:
        >>> alignment(torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 1.0]]))
        2.0
    """
    squared = 2 - 2 * (_unit(first) * _unit(second, first.shape)).sum(dim=1)
    return float(squared.clamp(min=0).mean())


class Measure(NamedTuple):
    """A value, and what it would be by chance.

    Attributes:
        value: as measured.
        chance: of embeddings that know nothing, see :func:`measure_bank`.
    """

    value: float
    chance: float


@functools.lru_cache(maxsize=8)
def measure_random_rows(count: int, dim: int) -> tuple[float, float]:
    """Return effective rank and uniformity of ``count`` random vectors; measured once."""
    rows = torch.randn(count, dim, generator=torch.Generator().manual_seed(0))
    return effective_rank(normalize(rows)), uniformity(rows)


@torch.no_grad()
def measure_bank(
    rows: Tensor,
    labels: Tensor | None = None,
    f: Tensor | None = None,
    g: Tensor | None = None,
    m: Tensor | None = None,
    k: int = 20,
) -> dict[str, Measure]:
    """Take all measures that the given tensors allow, each beside its value by chance.

    Chance is the share of the most frequent class for the kNN. For effective rank, uniformity and
    spread it is the value of random vectors. For alignment and cosines it is the value of
    different images.

    Args:
        rows: (N, D) floating, N of at least 2: rows of the memory bank, a sample of a large one.
        labels: (N,) int64, classes of these rows' images. Of one class, there is no kNN.
        f: (B, D), embeddings f(v_I) of some images, for instance of the last steps.
        g: (B, D), embeddings g(v_It) of the same images.
        m: (B, D), their rows of the bank.
        k: neighbours of the kNN.

    Returns:
        By name: ``knn_top1`` (percent), ``effective_rank``, ``uniformity``, ``alignment``,
        ``cos_f_m`` and ``cos_g_m`` (mean cosine with the own row), and ``score_spread``, as far as
        their tensors are given. ``score_spread`` is the root of the mean, over rows m, of the
        variance over images of cos(f, m). It is 0 where no row tells images apart.

    Raises:
        ValueError: a tensor's shape does not fit, or it is not finite.

    Example:
        >>> bank = torch.nn.functional.normalize(torch.arange(12.0).reshape(4, 3))
        >>> measured = measure_bank(bank, labels=torch.tensor([0, 0, 1, 1]), k=1)
        >>> measured["knn_top1"].chance, list(measured)
        (50.0, ['knn_top1', 'effective_rank', 'uniformity'])
    """
    found: dict[str, Measure] = {}
    table, dim = _unit(rows), rows.shape[1]
    if labels is not None:
        accuracy = leave_one_out_accuracy(rows, labels, k)  # which checks them
        counts = labels.unique(return_counts=True)[1]
        if len(counts) > 1:  # of one class, every guess is right
            found["knn_top1"] = Measure(accuracy, 100 * float(counts.max()) / len(labels))
    rank, evenness = measure_random_rows(len(rows), dim)
    found["effective_rank"] = Measure(effective_rank(rows), rank)
    found["uniformity"] = Measure(uniformity(rows), evenness)
    if f is not None and g is not None:
        image, transformed, count = _unit(f), _unit(g, f.shape), len(f)
        own = (image * transformed).sum(dim=1).mean()
        every = image.mean(dim=0) @ transformed.mean(dim=0)
        others = (count * every - own) / (count - 1) if count > 1 else own
        found["alignment"] = Measure(alignment(f, g), float(2 - 2 * others))
    for name, embeddings in (("cos_f_m", f), ("cos_g_m", g)):
        if embeddings is not None and m is not None:
            unit = _unit(embeddings, (len(embeddings), dim))
            value = (unit * _unit(m, unit.shape)).sum(dim=1).mean()
            found[name] = Measure(float(value), float(unit.mean(dim=0) @ table.mean(dim=0)))
    if f is not None and len(f) > 1:
        unit = _unit(f, (len(f), dim))
        centred = unit - unit.mean(dim=0)
        # Σ_nm (c_n · m_m)² = tr(CᵀC MᵀM): products of size D × D, not N × M
        total = ((centred.T @ centred) * (table.T @ table)).sum().clamp(min=0)
        spread = float((total / (len(unit) * len(table))).sqrt())
        found["score_spread"] = Measure(spread, dim**-0.5)
    return found


def collapse(measured: Mapping[str, Measure]) -> str | None:
    """Describe in a sentence that the embeddings have collapsed; None where they have not.

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


def _unit(features: Tensor, shape: Sequence[int] | None = None) -> Tensor:
    """Return unit-norm rows, in float32 or wider; check their shape, and that they are finite."""
    if features.ndim != 2 or features.shape != (shape or features.shape):
        raise ValueError(
            f"features have shape {tuple(features.shape)}: expected (images, dimensions), the same "
            f"for the same images; flatten each image's features"
        )
    if not features.isfinite().all():
        raise ValueError("features are not finite: expected numbers; look where they come from")
    return normalize(at_least_float32(features), dim=1)
