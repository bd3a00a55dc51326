"""Accuracy of frozen features at the last layer, and at the layer chosen on training photos."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from intervals import packed
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn
from torchvision.transforms import v2
from training import Photos

import pirl_plugin as pirl
from pirl_plugin.evaluation.knn import find_neighbors, vote
from pirl_plugin.evaluation.logistic import choose_layer, fit_logistic
from pirl_plugin.models.trunks import evaluating, on_grid

LAST = "last"
BATCH = 16  # for features; larger ones are slower on a CPU
FRACTIONS = (0.05, 0.1)


def center_crops(photos: Photos, size: int) -> Tensor:
    """Return center crops (N, C, size, size): uint8 for photos, float32 for other images."""
    crop = v2.Compose([v2.Resize(size), v2.CenterCrop(size)])
    return torch.stack(
        [
            v2.functional.pil_to_tensor(crop(image))
            if isinstance(image, Image.Image)
            else crop(image.float())
            for image, _ in photos
        ]
    )


def layer_features(
    network: nn.Module,
    photos: Photos,
    size: int,
    device: str = "cpu",
    normalize: Callable[[Tensor], Tensor] = pirl.normalize_images,
) -> dict[str, Tensor]:
    """Compute features for center crops at all layers, stages on the paper's grids.

    Args:
        network: a network whose ``stages`` name modules with outputs (B, C, H, W).
        photos: N images.
        size: crop size in pixels.
        device: the network's device.
        normalize: converts :func:`center_crops` to the network's input.

    Returns:
        Layer → float16 (N, D), on the CPU.
    """
    features: dict[str, list[Tensor]] = {}
    hooks = []
    for name in stages_of(network):

        def keep(_: nn.Module, __: Any, output: Tensor, name: str = name) -> None:
            features.setdefault(name, []).append(on_grid(output).half().cpu())

        hooks.append(network.get_submodule(name).register_forward_hook(keep))
    with evaluating(network), torch.no_grad():
        for start in range(0, len(photos), BATCH):
            pixels = center_crops(photos[start : start + BATCH], size)
            pooled = network(normalize(pixels.to(device)))
            features.setdefault(LAST, []).append(pooled.half().cpu())
    for hook in hooks:
        hook.remove()
    return {name: torch.cat(parts) for name, parts in features.items()}


def stages_of(network: nn.Module) -> list[str]:
    """Return the stage names of a ResNet, or those listed in a network's ``stages``."""
    return list(getattr(network, "stages", ("layer1", "layer2", "layer3", "layer4")))


def labeled_rows(labels: NDArray[np.int64], fraction: float, seed: int) -> NDArray[np.int64]:
    """Draw the training photos whose labels are used: two per class, and others at random."""
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
    seed: int = 0,
    fractions: Sequence[float] = (1.0, *FRACTIONS),
) -> dict[str, Any]:
    """Measure layers; nothing is chosen on the test photos.

    Args:
        train_layers: layer → (N, D), the last layer at the end.
        train_labels: (N,).
        test_layers: layer → (M, D).
        test_labels: (M,).
        seed: seed for drawing a fraction of the labels.
        fractions: fractions of the labels, each with a linear classifier.

    Returns:
        Entries for ``knn``, and for linear classifiers on all labels (``linear``) and on fractions
        (``linear_0.05`` …): the chosen ``layer``; ``last`` and ``best``, top-1 in percent at the
        last and the chosen layer; ``last_right`` and ``best_right``, which test photos are right
        (see :func:`packed`). The layer is chosen by leave-one-out for kNN, and on held-out photos
        for classifiers.
    """
    chosen_from: dict[str, Tensor] = {}
    right: dict[str, NDArray[np.bool_]] = {}
    for name, gallery in train_layers.items():
        chosen_from[name] = torch.from_numpy(
            knn_right(gallery, train_labels, gallery, train_labels, leave_one_out=True)
        )
        right[name] = knn_right(gallery, train_labels, test_layers[name], test_labels)
    best = max(reversed(chosen_from), key=lambda name: int(chosen_from[name].sum()))
    measured = {"knn": last_and_best(right, best)}
    for fraction in fractions:
        rows = labeled_rows(train_labels, fraction, seed)
        for name, layer in train_layers.items():
            fit = fit_logistic(layer[rows], train_labels[rows])
            chosen_from[name] = fit.held_out_right
            predicted, _ = fit.predict(test_layers[name])
            right[name] = predicted.numpy() == test_labels
        measure = "linear" if fraction == 1 else f"linear_{fraction}"
        measured[measure] = last_and_best(right, choose_layer(chosen_from, len(rows)))
    return measured


def knn_right(
    gallery: Tensor,
    gallery_labels: NDArray[np.int64],
    queries: Tensor,
    labels: NDArray[np.int64],
    *,
    leave_one_out: bool = False,
) -> NDArray[np.bool_]:
    """Return whether the 20 nearest neighbors classify each query correctly, (M,)."""
    neighbors = find_neighbors(queries, gallery, 20, leave_one_out=leave_one_out)
    return vote(*neighbors, torch.from_numpy(gallery_labels)).numpy() == labels


def last_and_best(right: dict[str, NDArray[np.bool_]], best: str) -> dict[str, Any]:
    """Return an entry for :func:`accuracies`."""
    return {
        "last": percent(right[LAST]),
        "best": percent(right[best]),
        "layer": best,
        "last_right": packed(right[LAST]),
        "best_right": packed(right[best]),
    }


def percent(right: NDArray[np.bool_]) -> float:
    """Return top-1 in percent."""
    return round(100 * float(right.mean()), 2)
