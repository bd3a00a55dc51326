"""Compare a network's layers by kNN, and print the comparison."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pirl_plugin.evaluation.knn import find_neighbors, percent_right, vote
from pirl_plugin.evaluation.labeled_features import LabeledFeatures, labeled_features
from pirl_plugin.evaluation.page import Accuracy
from pirl_plugin.images.classes import NO_CLASS
from pirl_plugin.images.labeled import LabeledImages
from pirl_plugin.models.resnet import LAST
from pirl_plugin.models.trunks import AnyTrunk

_MOST_IMAGES = 5000  # per split


@dataclass(frozen=True)
class LayerComparison:
    """kNN accuracies by layer.

    Attributes:
        networks: network names.
        top1: layer → top-1 on the test images, in percent, for each network.
        num_test: number of test images.
    """

    networks: Sequence[str]
    top1: dict[str, list[float]]
    num_test: int

    def chart(self) -> dict[str, list[Accuracy]]:
        """Return title → accuracies for a page; networks after the first are references."""
        bars = []
        for layer, accuracies in self.top1.items():
            for name, top1 in zip(self.networks, accuracies, strict=True):
                is_reference = name != self.networks[0]
                bars.append(Accuracy(f"{layer} {name}", top1, self.num_test, is_reference))
        return {f"Layers by kNN, {self.num_test:,} test images": bars}


def compare_layers(
    networks: Mapping[str, AnyTrunk],
    images: LabeledImages,
    k: int = 20,
    temperature: float = 0.07,
    batch: int = 128,
    workers: int | None = None,
) -> tuple[LayerComparison, LabeledFeatures]:
    """Evaluate and print each layer, on at most 5,000 training and 5,000 test images.

    They are drawn with seed 0. Each image is read once, or twice if there are more images. If a
    layer of the first network is clearly better than the pooled features, a sentence names it.

    Args:
        networks: name → network; of the same architecture, in evaluation mode, on one device.
        images: training and test images.
        k: number of neighbors that vote.
        temperature: τ in the votes exp(s / τ).
        batch: number of images at a time.
        workers: number of decoding processes; None: based on the numbers of cores and images.

    Returns:
        The comparison, and each network's pooled features for all images.

    Raises:
        Refused: no training image, or no test image, is labeled and readable.
    """
    trunks = list(networks.values())
    layers = trunks[0].layers
    train_rows = sample_rows(images.train_labels, _MOST_IMAGES)
    test_rows = sample_rows(images.test_labels, _MOST_IMAGES)
    rows = [*train_rows, *(len(images.train) + row for row in test_rows)]
    measured = labeled_features(trunks, layers, images, rows, batch, workers)
    train_labels = measured.train_labels
    num_train = len(train_labels)
    num_test = len(measured.test_labels)
    top1: dict[str, list[float]] = {layer: [] for layer in layers}
    for layer, features in zip(list(layers) * len(trunks), measured.features, strict=True):
        train, test = measured.split(features)
        predicted = vote(*find_neighbors(test, train, k), train_labels, temperature)
        top1[layer].append(percent_right(predicted == measured.test_labels))
    answers: dict[str, Tensor] = {}  # for the first network, leave-one-out
    groups = None if measured.groups is None else torch.from_numpy(measured.groups[:num_train])
    if num_train > 1:
        for layer, features in zip(layers, measured.features, strict=False):
            train, _ = measured.split(features)
            neighbors = find_neighbors(train, train, k, leave_one_out=True, groups=groups)
            answers[layer] = vote(*neighbors, train_labels, temperature) == train_labels
    is_sample = len(rows) < int((images.labels != NO_CLASS).sum())
    print(
        f"Layers by kNN top-1, percent (k = {min(k, num_train)}, {num_train:,} "
        f"training and {num_test:,} test images{', drawn with seed 0' if is_sample else ''}):"
    )
    print(" " * 10 + "".join(f"{name:>17}" for name in networks))
    for layer, accuracies in top1.items():
        print(f"  {layer:8}" + "".join(f"{accuracy:17.2f}" for accuracy in accuracies))
    print(_advice(answers), end="", flush=True)
    comparison = LayerComparison(list(networks), top1, num_test)
    if is_sample:
        return comparison, labeled_features(trunks, [LAST], images, batch=batch, workers=workers)
    features_of_last = measured.features[layers.index(LAST) :: len(layers)]
    return comparison, replace(measured, features=features_of_last)


def sample_rows(labels: NDArray[np.int64], most: int) -> list[int]:
    """Draw at most ``most`` rows with labels; return them in order."""
    rows = np.flatnonzero(labels != NO_CLASS)
    if len(rows) > most:
        rows = np.sort(np.random.default_rng(0).choice(rows, most, replace=False))
    return [int(row) for row in rows]


def clearly_best(is_right: Mapping[str, Tensor]) -> str | None:
    """Return the layer that beats the last one by more than chance; None if there is none.

    The best of several equally good layers seems better than the last one. This is McNemar's test
    with continuity correction, adjusted for the number of layers (Šidák 1967). Leave-one-out
    answers depend on each other, because images share neighbors: at a level of 1 %, equal layers
    pass the test in at most 5 % of draws.

    Args:
        is_right: layer → bool ``(N,)``, whether each image is classified correctly.

    Example:
        >>> import torch
        >>> last = torch.arange(100) < 50
        >>> clearly_best({"res2": torch.arange(100) < 58, LAST: last})  # (8 − 1) / √8 > 2.33
        'res2'
    """
    other_layers = [layer for layer in is_right if layer != LAST]
    if not other_layers or LAST not in is_right:
        return None
    best = max(other_layers, key=lambda layer: int(is_right[layer].sum()))
    gained = int((is_right[best] & ~is_right[LAST]).sum())
    lost = int((is_right[LAST] & ~is_right[best]).sum())
    chance = NormalDist().inv_cdf(0.99 ** (1 / len(other_layers)))  # in standard deviations
    return best if gained - lost - 1 > chance * math.sqrt(gained + lost) else None


def _advice(is_right: Mapping[str, Tensor]) -> str:
    """Recommend a layer that is clearly better than the pooled features, in one line, or "".

    Args:
        is_right: layer → bool ``(N,)``, whether the other training images classify each correctly.
    """
    layer = clearly_best(is_right)
    if layer is None:
        return ""
    gain = 100 * float(is_right[layer].float().mean() - is_right[LAST].float().mean())
    return (
        f"On the training images (leave-one-out), {layer} scores {gain:.1f} points above the "
        f"pooled features. To use it, pass --layer {layer}.\n"
    )
