"""Compare the pre-trained network with an untrained one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pirl_plugin.evaluation.features import collect, compute_features
from pirl_plugin.evaluation.knn import find_neighbors, percent_right, vote
from pirl_plugin.evaluation.labeled_features import LabeledFeatures
from pirl_plugin.evaluation.layer_comparison import LayerComparison, compare_layers
from pirl_plugin.evaluation.logistic import fit_logistic
from pirl_plugin.evaluation.measures import paired_gain
from pirl_plugin.evaluation.pictures import PageImages, choose_display, page_images
from pirl_plugin.images.source import evenly_spaced
from pirl_plugin.models.trunks import AnyTrunk, untrained
from pirl_plugin.quickstart.images import Data

_UNLABELED = 2000  # images on the map if there are no classes


@dataclass(frozen=True)
class Evaluated:
    """Images, and their features.

    Attributes:
        images: N training images and then M test images; without labels, only training images.
        features: float16 ``(N + M, D)``, the pre-trained network's pooled res5.
        comparison: the networks' layers, and their features, the pre-trained network's first; None
            without labels.
    """

    images: PageImages
    features: Tensor
    comparison: tuple[LayerComparison, LabeledFeatures] | None = None


def evaluate(data: Data, trunk: AnyTrunk, title: str) -> Evaluated:
    """Compute features and, for labeled images, compare the networks layer by layer.

    Args:
        data: the images; without labels, at most 2,000 of them are used, evenly spaced.
        trunk: the pre-trained network.
        title: its name in the layer comparison.
    """
    config = trunk.network_config
    display = choose_display(data.train, config.reading)
    if data.labeled is None:
        rows = torch.tensor(evenly_spaced(len(data.train), _UNLABELED))
        batches = compute_features(
            lambda images: [trunk(images)], data.train, config, rows.tolist(), workers=0
        )
        (features,), readable, _ = collect(batches, len(rows))
        return Evaluated(page_images(data.train, rows[readable].tolist(), display), features)
    networks = {title: trunk, "Random": untrained(trunk)}
    layers, measured = compare_layers(networks, data.labeled, workers=0)
    return Evaluated(measured.show(display), measured.features[0], (layers, measured))


def accuracies(layers: LayerComparison, measured: LabeledFeatures) -> dict[str, dict[str, Any]]:
    """Return the accuracies for ``results.json``.

    Returns:
        Network → ``knn_top1`` and ``linear_top1``, percent; ``gain`` → for each of these, the gain
        of ``pirl`` over ``random`` and half the width of its 95 % interval, in points; ``layers`` →
        network → layer → kNN accuracy.
    """
    labels = measured.train_labels
    is_right = []  # of the pre-trained and the untrained network
    for features in measured.features:
        train, test = measured.split(features)
        neighbors = vote(*find_neighbors(test, train, 20), labels)
        linear, _ = fit_logistic(train, labels.numpy()).predict(test)
        is_right.append(
            {
                "knn_top1": neighbors == measured.test_labels,
                "linear_top1": linear == measured.test_labels,
            }
        )
    results: dict[str, dict[str, Any]] = {"gain": {}, "layers": {}}
    for number, name in enumerate(("pirl", "random")):
        results[name] = {key: percent_right(right) for key, right in is_right[number].items()}
        results["layers"][name] = {layer: top1[number] for layer, top1 in layers.top1.items()}
    for key, right in is_right[0].items():
        gain, interval = paired_gain(right, is_right[1][key])
        results["gain"][key] = [round(gain, 2), round(interval, 2)]
    return results
