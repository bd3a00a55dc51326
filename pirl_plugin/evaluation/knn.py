"""Nearest neighbours in feature space: the weighted kNN classifier and the neighbours themselves.

Wu et al. 2018, "Unsupervised Feature Learning via Non-Parametric Instance Discrimination",
Sec. 3.4 (https://arxiv.org/abs/1805.01978): the k training images with the highest cosine
similarity s_i to the test feature vote for their class with weight exp(s_i / τ).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize


def knn_accuracy(
    train_features: Tensor,
    train_labels: Tensor,
    test_features: Tensor,
    test_labels: Tensor,
    k: int = 20,
    temperature: float = 0.07,
    chunk: int = 256,
) -> float:
    """Top-1 accuracy of the weighted cosine kNN classifier (Wu et al. 2018, Sec. 3.4).

    Features need not be normalised. Memory beside the inputs is O(chunk · (N + classes)) plus one
    normalised copy of the training features. Of classes with equal votes the smallest label wins.

    Args:
        train_features: (N, D) floating, on any device; the gallery.
        train_labels: (N,) int64, any whole numbers.
        test_features: (M, D) floating, moved to the device of `train_features`.
        test_labels: (M,) int64; a label that no training image has counts as an error.
        k: neighbours that vote, clipped to N.
        temperature: τ of the votes exp(s / τ).
        chunk: test images that are compared at once.

    Returns:
        The accuracy in percent, 0 to 100.

    Raises:
        ValueError: for shapes that do not fit, no images, labels that are not whole numbers,
            features that are not finite, or k, chunk or temperature not above 0.

    Example:
        >>> train = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> knn_accuracy(train, torch.tensor([3, 7]), torch.tensor([[2.0, 1.0]]), torch.tensor([3]))
        100.0
    """
    _check_labels("train", train_labels, train_features)
    _check_labels("test", test_labels, test_features)
    found = _search(test_features, train_features, k, chunk)
    return _vote(*found, train_labels, test_labels, temperature, chunk)


def leave_one_out_accuracy(
    features: Tensor, labels: Tensor, k: int = 20, temperature: float = 0.07, chunk: int = 256
) -> float:
    """Top-1 accuracy of :func:`knn_accuracy` where each row is classified by all the others.

    Nothing but the features is needed, so that the rows of a memory bank show what was learnt so
    far (as in Wu et al. 2018, who follow the bank while it trains).

    Args:
        features: (N, D) floating, N of at least 2; for instance rows of a memory bank.
        labels: (N,) int64, any whole numbers.
        k: neighbours that vote, clipped to N − 1.
        temperature: τ of the votes exp(s / τ).
        chunk: rows that are compared at once.

    Returns:
        The accuracy in percent, 0 to 100. Guessing always the most frequent class gives its share.

    Raises:
        ValueError: as :func:`knn_accuracy`, and for a single row.

    Example:
        >>> rows = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
        >>> leave_one_out_accuracy(rows, torch.tensor([5, 5, 8, 8]), k=1)
        100.0
    """
    _check_labels("leave-one-out", labels, features)
    if len(features) < 2:
        raise ValueError(
            f"leave-one-out features have shape {tuple(features.shape)}: expected at least 2 "
            f"images, which are compared with each other; give more"
        )
    found = _search(features, features, k, chunk, leave_one_out=True)
    return _vote(*found, labels, labels, temperature, chunk)


def _vote(
    near: Tensor,
    similarity: Tensor,
    train_labels: Tensor,
    test_labels: Tensor,
    temperature: float,
    chunk: int,
) -> float:
    """Share of the test images, percent, whose class wins among their neighbours (M, k)."""
    if not temperature > 0:
        raise ValueError(f"temperature = {temperature}: expected a number above 0; set it to 0.07")
    classes, train_class = torch.unique(train_labels.to(near.device), return_inverse=True)
    # exp((s - s_max) / τ): the common factor exp(s_max / τ) changes no winner and cannot overflow
    weights = ((similarity - similarity[:, :1]) / temperature).exp()
    correct = 0
    for start in range(0, len(near), chunk):
        part = slice(start, start + chunk)
        ballots = train_class[near[part]]  # (chunk, k)
        votes = weights.new_zeros(len(ballots), len(classes)).scatter_add_(
            1, ballots, weights[part]
        )
        predicted = classes[votes.argmax(dim=1)]
        correct += int((predicted == test_labels[part].to(near.device)).sum())
    return 100.0 * correct / len(near)


def nearest_neighbors(query: Tensor, gallery: Tensor, k: int, chunk: int = 256) -> Tensor:
    """The k gallery rows most alike each query by cosine, the most alike first.

    Args:
        query: (M, D) floating; moved to the device of `gallery`.
        gallery: (N, D) floating.
        k: how many, clipped to N. A query that is itself in the gallery finds itself first.
        chunk: queries that are compared at once.

    Returns:
        int64 (M, min(k, N)) row numbers of `gallery`, on its device.

    Raises:
        ValueError: as `knn_accuracy` does.

    Example:
        >>> gallery = torch.tensor([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
        >>> nearest_neighbors(torch.tensor([[3.0, 1.0]]), gallery, k=2).tolist()
        [[1, 2]]
    """
    return _search(query, gallery, k, chunk)[0]


def _search(
    query: Tensor, gallery: Tensor, k: int, chunk: int, leave_one_out: bool = False
) -> tuple[Tensor, Tensor]:
    """Returns row numbers int64 (M, k) and cosines float32 or float64 (M, k), best first.

    With ``leave_one_out``, where the queries are the gallery, a row is no neighbour of itself.
    """
    if leave_one_out:
        _check_features("leave-one-out", gallery)
    else:
        _check_features("query (test)", query)
        _check_features("gallery (train)", gallery)
    if query.shape[1] != gallery.shape[1]:
        raise ValueError(
            f"query (test) features have {query.shape[1]} dimensions and gallery (train) features "
            f"{gallery.shape[1]}: expected the same; take both from the same layer"
        )
    for name, value, usual in (("k", k, 20), ("chunk", chunk, 256)):
        if value < 1:
            raise ValueError(
                f"{name} = {value}: expected a whole number of at least 1; set it to {usual}"
            )
    dtype = torch.float64 if gallery.dtype == torch.float64 else torch.float32
    columns = normalize(gallery.to(dtype), dim=1).T  # (D, N)
    k = min(k, len(gallery) - leave_one_out)
    found = []
    for number, part in enumerate(query.split(chunk)):
        cosine = normalize(part.to(columns.device, dtype), dim=1) @ columns  # (chunk, N)
        if leave_one_out:
            cosine.diagonal(number * chunk).fill_(-torch.inf)
        found.append(cosine.topk(k, dim=1))
    return torch.cat([top.indices for top in found]), torch.cat([top.values for top in found])


def _check_features(name: str, features: Tensor) -> None:
    if features.ndim != 2 or not features.is_floating_point():
        raise ValueError(
            f"{name} features have shape {tuple(features.shape)} and dtype {features.dtype}: "
            "expected floating (images, dimensions); flatten each image's feature map first"
        )
    if 0 in features.shape:
        raise ValueError(
            f"{name} features have shape {tuple(features.shape)}: expected at least one "
            "image and one dimension; give some"
        )
    bad = int((~torch.isfinite(features).all(dim=1)).sum())
    if bad:
        raise ValueError(
            f"{name} features of {bad} of {len(features)} images hold NaN or infinity: expected "
            "finite numbers; the checkpoint may have diverged, or features overflowed in fp16: "
            "compute them in float32, or take an earlier checkpoint"
        )


def _check_labels(name: str, labels: Tensor, features: Tensor) -> None:
    if not isinstance(labels, Tensor):
        raise ValueError(
            f"{name} labels are a {type(labels).__name__}: expected a tensor of whole numbers; "
            f"give torch.tensor(labels)"
        )
    if labels.ndim != 1 or len(labels) != len(features):
        raise ValueError(
            f"{name} labels have shape {tuple(labels.shape)} for features of shape "
            f"{tuple(features.shape)}: expected one for each image, ({len(features)},); give as "
            f"many"
        )
    if labels.is_floating_point() or labels.is_complex():
        raise ValueError(
            f"{name} labels have dtype {labels.dtype}: expected whole numbers; use .long()"
        )
