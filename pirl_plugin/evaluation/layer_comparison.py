"""Compare the layers of a network by kNN, on a sample of labelled images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pirl_plugin.evaluation.feature_file import FeatureStore
from pirl_plugin.evaluation.features import compute_features
from pirl_plugin.evaluation.knn import find_neighbors, is_voted_for, vote
from pirl_plugin.evaluation.measures import paired_gain
from pirl_plugin.images.classes import NO_CLASS
from pirl_plugin.images.sources import LabelledImages
from pirl_plugin.models.trunks import LAST, AnyTrunk, Layers, layer_names
from pirl_plugin.system.failures import Refused

_MOST_IMAGES = 5000  # of a split


@dataclass(frozen=True)
class LayerComparison:
    """The kNN accuracies of a network's layers.

    Attributes:
        top1: layer → top-1 of each network on the test images, percent.
        k: neighbours that voted.
        num_train: number of training images.
        num_test: number of test images.
        stores: of each network's pooled features, if every image was read; or else nothing.
        advice: another layer that is better than the pooled features, in a sentence; or nothing.
    """

    top1: dict[str, list[float]]
    k: int
    num_train: int
    num_test: int
    stores: list[FeatureStore]
    advice: str

    def table(self, networks: Sequence[str]) -> str:
        """Return a line for each layer, under the names of the networks."""
        first = (
            f"Layers by kNN top-1, percent (k = {self.k}, {self.num_train:,} training and "
            f"{self.num_test:,} test images):"
        )
        lines = [first, "  " + " " * 8 + "".join(f"{name:>11}" for name in networks)]
        for layer, accuracies in self.top1.items():
            lines.append(f"  {layer:8}" + "".join(f"{top1:11.2f}" for top1 in accuracies))
        return "\n".join(lines)


def compare_layers(
    networks: Sequence[AnyTrunk],
    images: LabelledImages,
    k: int,
    temperature: float,
    batch: int = 128,
    workers: int | None = None,
    folder: Path | None = None,
) -> LayerComparison:
    """Measure every layer of networks on at most 5,000 training and 5,000 test images.

    The images are drawn with seed 0. Each is read once.

    Args:
        networks: networks of the same kind, in evaluation mode, on one device.
        images: training and test images.
        k: neighbours that vote.
        temperature: of the votes.
        batch: images at a time.
        workers: processes that decode; None: from the number of cores and of images.
        folder: where the features are stored; None: the folder of temporary files.

    Raises:
        Refused: no training image, or no test image, can be read and has a class.
    """
    layers = layer_names(networks[0])
    train_rows = draw_rows(images.train_labels)
    test_rows = draw_rows(images.test_labels)
    stores, train_labels, test_labels = store_layers(
        networks, layers, images, train_rows, test_rows, batch, workers, folder
    )
    num_train = len(train_labels)

    top1: dict[str, list[float]] = {layer: [] for layer in layers}
    answers: dict[str, Tensor] = {}  # of the first network, left out one by one
    for number, store in enumerate(stores):
        layer = layers[number % len(layers)]
        gallery, queries = store.half_features().tensor_split([num_train])
        neighbors = find_neighbors(queries, gallery, k)
        top1[layer].append(round(vote(*neighbors, train_labels, test_labels, temperature), 2))
        if number < len(layers) and num_train > 1:
            neighbors = find_neighbors(gallery, gallery, k, leave_one_out=True)
            answers[layer] = is_voted_for(*neighbors, train_labels, train_labels, temperature)
    num_rows = len(train_rows) + len(test_rows)
    is_whole = num_rows == len(images.train) + len(images.test)
    return LayerComparison(
        top1=top1,
        k=min(k, num_train),
        num_train=num_train,
        num_test=len(test_labels),
        stores=stores[layers.index(LAST) :: len(layers)] if is_whole else [],
        advice=_advice(answers),
    )


def store_layers(
    networks: Sequence[AnyTrunk],
    layers: Sequence[str],
    images: LabelledImages,
    train_rows: Sequence[int],
    test_rows: Sequence[int],
    batch: int = 128,
    workers: int | None = None,
    folder: Path | None = None,
) -> tuple[list[FeatureStore], Tensor, Tensor]:
    """Store the features of layers; read each image once.

    Args:
        networks: as in :func:`compare_layers`.
        layers: names of layers.
        images: training and test images.
        train_rows: rows of the training images that have a class.
        test_rows: rows of the test images that have a class.
        batch: images at a time.
        workers: processes that decode; None: from the number of cores and of images.
        folder: where the features are stored; None: the folder of temporary files.

    Returns:
        A store for each layer of each network, the layers of the first network first, of the N
        training and M test images that can be read; and their classes, int64 ``(N,)``, ``(M,)``.

    Raises:
        Refused: no training image, or no test image, can be read and has a class.
    """
    rows = [*train_rows, *(len(images.train) + row for row in test_rows)]
    labels = torch.from_numpy(
        np.concatenate([images.train_labels[train_rows], images.test_labels[test_rows]])
    )
    splits = {"train": images.train, "val": images.test}
    stores = [FeatureStore(splits, folder) for _ in networks for _ in layers]
    readable_parts = [torch.zeros(0, dtype=torch.bool)]
    trunks = [Layers(network, layers) for network in networks]
    sources = [images.train, images.test]
    preprocessing = networks[0].preprocessing
    for features, valid in compute_features(trunks, sources, preprocessing, rows, batch, workers):
        for store, part in zip(stores, features, strict=True):
            store.append(part, valid)
        readable_parts.append(valid)
    readable = torch.cat(readable_parts)
    num_train = int(readable[: len(train_rows)].sum())
    train_labels, test_labels = labels[readable].tensor_split([num_train])
    if not (len(train_labels) and len(test_labels)):
        raise Refused(
            f"{images.train.path} and {images.test.path}: expected images that can be read, and "
            f"have a class, in both, found {len(train_labels)} and {len(test_labels)}"
        )
    return stores, train_labels, test_labels


def draw_rows(labels: NDArray[np.int64]) -> list[int]:
    """Draw at most 5,000 rows of images with a class, in their order."""
    rows = np.flatnonzero(labels != NO_CLASS)
    if len(rows) > _MOST_IMAGES:
        rows = np.sort(np.random.default_rng(0).choice(rows, _MOST_IMAGES, replace=False))
    return [int(row) for row in rows]


def _advice(answers: dict[str, Tensor]) -> str:
    """Name a layer that is better than the pooled features by more than its standard error.

    Args:
        answers: layer → bool ``(N,)``, whether the other training images classify each correctly.
    """
    if not answers:
        return ""
    best = max(answers, key=lambda layer: int(answers[layer].sum()))
    gain, interval = paired_gain(answers[best], answers[LAST])
    if gain <= interval / 1.96:
        return ""
    return (
        f"By leave-one-out on the training images, {best} is better than the pooled features "
        f"({gain:+.1f} ± {interval:.1f} points): give --layer {best}"
    )
