"""Nearest neighbors in feature space, and the weighted kNN classifier.

Wu et al. 2018, "Unsupervised Feature Learning via Non-Parametric Instance Discrimination",
Sec. 3.4 (https://arxiv.org/abs/1805.01978): the k training images with the highest cosine
similarity s_i to the test feature vote for their class with weight exp(s_i / τ).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pirl_plugin.system.failures import Refused, type_and_shape


def knn_accuracy(
    train_features: Tensor,
    train_labels: Tensor,
    test_features: Tensor,
    test_labels: Tensor,
    k: int = 20,
    temperature: float = 0.07,
) -> float:
    """Return the top-1 accuracy of the weighted cosine kNN classifier (Wu et al. 2018, Sec. 3.4).

    Features are normalized here. If classes have equal votes, the smallest label wins.

    Args:
        train_features: (N, D) floating, on any device; the gallery.
        train_labels: (N,) int64, any integers.
        test_features: (M, D) floating, moved to the device of ``train_features``.
        test_labels: (M,) int64; a label without training images counts as an error.
        k: number of neighbors that vote, at most N.
        temperature: τ in the votes exp(s / τ).

    Returns:
        The accuracy in percent, 0 to 100.

    Raises:
        ValueError: labels and features differ in number, labels are not integers, features are
            not finite or have no rows, or k or temperature is not positive.

    Example:
        >>> train = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> knn_accuracy(train, torch.tensor([3, 7]), torch.tensor([[2.0, 1.0]]), torch.tensor([3]))
        100.0
    """
    _check_labels("train_", train_labels, len(train_features))
    _check_labels("test_", test_labels, len(test_features))
    rows, cosines = find_neighbors(test_features, train_features, k)
    predicted = vote(rows, cosines, train_labels, temperature)
    return 100.0 * int((predicted == test_labels.to(predicted.device)).sum()) / len(test_labels)


def leave_one_out_accuracy(
    features: Tensor,
    labels: Tensor,
    k: int = 20,
    temperature: float = 0.07,
    groups: Tensor | None = None,
) -> float:
    """Return the top-1 accuracy when each row is classified by all others.

    On a memory bank, it shows how training progresses (as in Wu et al. 2018). See
    :func:`knn_accuracy`.

    Args:
        features: (N, D) floating, N at least 2.
        labels: (N,) int64, any integers.
        k: number of neighbors that vote, at most N − 1.
        temperature: τ in the votes exp(s / τ).
        groups: (N,) integers; rows in the same group do not vote. None: no groups.

    Returns:
        The accuracy in percent, 0 to 100.

    Raises:
        ValueError: as for :func:`knn_accuracy`, or there is a single row.

    Example:
        >>> rows = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
        >>> leave_one_out_accuracy(rows, torch.tensor([5, 5, 8, 8]), k=1)
        100.0
    """
    _check_labels("", labels, len(features))
    rows, cosines = find_neighbors(features, features, k, leave_one_out=True, groups=groups)
    predicted = vote(rows, cosines, labels, temperature)
    return 100.0 * int((predicted == labels).sum()) / len(labels)


@torch.no_grad()
def find_neighbors(
    query: Tensor,
    gallery: Tensor,
    k: int,
    *,
    leave_one_out: bool = False,
    groups: Tensor | None = None,
    chunk: int = 256,
    block: int = 65_536,
    device: torch.device | None = None,
) -> tuple[Tensor, Tensor]:
    """Find the k gallery rows nearest to each query by cosine similarity.

    Both are processed in blocks: besides the inputs and the result, memory holds one gallery block
    in float32, and scores for it and one chunk of queries.

    Args:
        query: (M, D) floating. A query that is in the gallery finds itself first.
        gallery: (N, D) floating.
        k: number of neighbors, at most N.
        leave_one_out: the queries are the gallery, and no row is its own neighbor.
        groups: (N,) integers; then no row is a neighbor of a row in its own group, either. If too
            few rows remain, the last cosines are −∞.
        chunk: queries at a time.
        block: gallery rows at a time.
        device: where to compute; None: on the gallery's device.

    Returns:
        Row numbers int64 (M, k), and cosines (M, k) in float32 (float64 for a float64 gallery),
        most similar first, on ``device``.

    Raises:
        ValueError: features are not finite, or there is no neighbor.

    Example:
        >>> gallery = torch.tensor([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
        >>> find_neighbors(torch.tensor([[3.0, 1.0]]), gallery, k=2)[0].tolist()
        [[1, 2]]
    """
    device = device or gallery.device
    k = min(k, len(gallery) - leave_one_out)
    if k < 1:
        raise Refused(f"`k` = {k} with {len(gallery)} rows: expected at least one neighbor")
    dtype = torch.float64 if gallery.dtype == torch.float64 else torch.float32
    if groups is None:
        groups = torch.arange(len(gallery))  # each row is a group of its own
    groups = groups.to(device)
    rows = torch.zeros(len(query), k, dtype=torch.int64, device=device)
    cosines = torch.full((len(query), k), -torch.inf, dtype=dtype, device=device)
    for first in range(0, len(gallery), block):
        columns = unit_rows(gallery[first : first + block].to(device, dtype)).T  # (D, block)
        numbers = torch.arange(first, first + columns.shape[1], device=device)
        for start in range(0, len(query), chunk):
            part = slice(start, min(start + chunk, len(query)))
            cosine = unit_rows(query[part].to(device, dtype)) @ columns
            if leave_one_out:
                cosine.masked_fill_(groups[numbers] == groups[part, None], -torch.inf)
            near = cosine.topk(min(k, cosine.shape[1]), dim=1)
            # Merge with the nearest rows from earlier blocks.
            candidates = torch.cat([rows[part], near.indices + first], dim=1)
            top = torch.cat([cosines[part], near.values], dim=1).topk(k, dim=1)
            cosines[part] = top.values
            rows[part] = candidates.gather(1, top.indices)
    return rows, cosines


def vote(
    rows: Tensor,
    cosines: Tensor,
    train_labels: Tensor,
    temperature: float = 0.07,
    chunk: int = 256,
) -> Tensor:
    """Return the class that wins the vote for each test image.

    Args:
        rows: (M, k) int64, from :func:`find_neighbors`; for a smaller k, pass the first columns.
        cosines: (M, k).
        train_labels: (N,) int64.
        temperature: τ in the votes exp(s / τ).
        chunk: test images at a time.

    Returns:
        int64 ``(M,)``, on the labels' device.

    Raises:
        ValueError: τ is not positive.
    """
    if not temperature > 0:
        raise Refused(f"`temperature` = {temperature}: expected a number above 0, such as 0.07")
    classes, train_class = torch.unique(train_labels.to(rows.device), return_inverse=True)
    # exp((s - s_max) / τ): the common factor exp(s_max / τ) changes no winner and cannot overflow
    weights = ((cosines - cosines[:, :1]) / temperature).exp()
    winners = []
    for ballots, weight in zip(train_class[rows].split(chunk), weights.split(chunk), strict=True):
        votes = weight.new_zeros(len(ballots), len(classes))  # the sum of weights by class
        winners.append(votes.scatter_add_(1, ballots, weight).argmax(dim=1))
    return classes[torch.cat(winners)].to(train_labels.device)


def percent_right(is_right: Tensor) -> float:
    """Return the share of correct answers, bool ``(M,)``, in percent with two decimals."""
    return round(100.0 * int(is_right.sum()) / len(is_right), 2)


def _check_labels(name: str, labels: Tensor, count: int) -> None:
    if count == 0:
        raise Refused(f"{name}features = (0, …): expected at least one row")
    is_tensor = isinstance(labels, Tensor) and not labels.is_floating_point()
    if not is_tensor or labels.shape != (count,):
        raise Refused(
            f"{name}labels is {type_and_shape(labels)}: expected a tensor with one integer for "
            f"each of {count} rows"
        )


def unit_rows(features: Tensor) -> Tensor:
    """Normalize rows to unit norm, ``(N, D)``; raise ``Refused`` if some are not finite."""
    if not bool(features.isfinite().all()):
        raise Refused(
            "features have NaN or infinite values. The checkpoint may have diverged; use an "
            "earlier one."
        )
    return normalize(features, dim=1)
