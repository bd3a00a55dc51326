"""All that the memory bank tells of training so far, each number beside its chance.

For any training loop; :mod:`pirl_plugin.vissl.hooks.monitor` calls it in the host's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from pirl_plugin.evaluation.knn import leave_one_out_accuracy
from pirl_plugin.evaluation.measures import (
    alignment,
    effective_rank,
    mean_cosine,
    mean_cosine_of_all,
    random_effective_rank,
    random_uniformity,
    score_spread,
    uniformity,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

LINE_KEY = "PIRL_MONITOR"  # of the line in stdout.json that holds an epoch's measures


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


def _alignment_of_others(f: Tensor, g: Tensor) -> float:
    """Mean of ‖x − y‖² over all pairs of two different images; their own where there is one."""
    count = len(f)
    if count == 1:
        return alignment(f, g)
    cosine = (count * mean_cosine_of_all(f, g) - mean_cosine(f, g)) / (count - 1)
    return 2 - 2 * cosine


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
