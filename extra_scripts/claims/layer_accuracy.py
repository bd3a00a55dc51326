"""Accuracy of frozen features, at the last layer and at the layer that training photos choose."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torchvision.transforms import v2
from training import Photos

import pirl_plugin as pirl
from pirl_plugin.evaluation.knn import find_neighbors, vote
from pirl_plugin.evaluation.logistic import choose_layer, fit_logistic
from pirl_plugin.models.trunks import evaluating, on_grid

LAST = "last"
FRACTIONS = (0.05, 0.1)


def layer_features(
    network: nn.Module, photos: Photos, size: int, device: str = "cpu"
) -> dict[str, Tensor]:
    """Return the features of all layers of centre crops, stages on the paper's grids.

    Args:
        network: its ``stages`` name modules with outputs (B, C, H, W).
        photos: N images.
        size: of the crops, pixels.
        device: of the network.

    Returns:
        Layer → float16 (N, D), on the CPU.
    """
    crop = v2.Compose([v2.Resize(size), v2.CenterCrop(size), v2.PILToTensor()])
    features: dict[str, list[Tensor]] = {}
    hooks = []
    for name in stages_of(network):

        def keep(_: nn.Module, __: Any, output: Tensor, name: str = name) -> None:
            features.setdefault(name, []).append(on_grid(output).half().cpu())

        hooks.append(network.get_submodule(name).register_forward_hook(keep))
    with evaluating(network), torch.no_grad():
        for start in range(0, len(photos), 128):
            pixels = torch.stack([crop(image) for image, _ in photos[start : start + 128]])
            pooled = network(pirl.normalize_images(pixels.to(device)))
            features.setdefault(LAST, []).append(pooled.half().cpu())
    for hook in hooks:
        hook.remove()
    return {name: torch.cat(parts) for name, parts in features.items()}


def stages_of(network: nn.Module) -> list[str]:
    """Return the names of a ResNet's stages, or those that a network lists in ``stages``."""
    return list(getattr(network, "stages", ("layer1", "layer2", "layer3", "layer4")))


def labelled_rows(labels: NDArray[np.int64], fraction: float, seed: int) -> NDArray[np.int64]:
    """Draw the training photos whose labels are used: two of each class, and others at random."""
    order = np.random.default_rng(seed).permutation(len(labels))
    of_class = [order[labels[order] == label][:2] for label in np.unique(labels)]
    first = np.concatenate(of_class)
    others = order[~np.isin(order, first)]
    count = max(round(fraction * len(labels)), len(first))
    return np.sort(np.concatenate([first, others])[:count])


def accuracies(
    train_layers: dict[str, Tensor],
    train_labels: NDArray[np.int64],
    test_layers: dict[str, Tensor],
    test_labels: NDArray[np.int64],
    seed: int,
) -> dict[str, Any]:
    """Measure layers; the test photos choose nothing.

    Args:
        train_layers: layer → (N, D).
        train_labels: (N,).
        test_layers: layer → (M, D).
        test_labels: (M,).
        seed: of the labels that are used of a fraction.

    Returns:
        For ``knn`` and the linear classifiers on all labels (``linear``) and fractions
        (``linear_0.05`` …): top-1 at the last layer, at the best layer, and its name. The best
        layer of kNN is chosen by leave-one-out, that of a classifier on held-out labeled photos.
    """
    measured: dict[str, Any] = {}
    measured["knn"] = knn_of_layers(train_layers, train_labels, test_layers, test_labels)
    for fraction in (1.0, *FRACTIONS):
        rows = labelled_rows(train_labels, fraction, seed)
        labels = train_labels[rows]
        fits = {name: fit_logistic(layer[rows], labels) for name, layer in train_layers.items()}
        held_out = {name: torch.from_numpy(fit.held_out_right) for name, fit in fits.items()}
        best = choose_layer(held_out, len(rows))
        top1 = {}
        for name in (LAST, best):
            is_right = fits[name].predict(test_layers[name]) == test_labels
            top1[name] = round(100 * float(is_right.mean()), 2)
        measured["linear" if fraction == 1 else f"linear_{fraction}"] = {
            "last": top1[LAST],
            "best": top1[best],
            "layer": best,
        }
    return measured


def knn_of_layers(
    train_layers: dict[str, Tensor],
    train_labels: NDArray[np.int64],
    test_layers: dict[str, Tensor],
    test_labels: NDArray[np.int64],
) -> dict[str, Any]:
    """Return kNN top-1, percent, at the last layer and at the best by leave-one-out, and its name.

    Arguments are those of :func:`accuracies`.
    """
    gallery_labels = torch.from_numpy(train_labels)
    query_labels = torch.from_numpy(test_labels)
    chosen = {}
    top1 = {}
    for name, gallery in train_layers.items():
        neighbors = find_neighbors(gallery, gallery, 20, leave_one_out=True)
        is_right = vote(*neighbors, gallery_labels) == gallery_labels
        chosen[name] = int(is_right.sum())
        neighbors = find_neighbors(test_layers[name], gallery, 20)
        is_right = vote(*neighbors, gallery_labels) == query_labels
        top1[name] = 100.0 * int(is_right.sum()) / len(is_right)
    best = max(chosen, key=lambda name: chosen[name])
    return {"last": round(top1[LAST], 2), "best": round(top1[best], 2), "layer": best}
