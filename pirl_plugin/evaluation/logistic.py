"""scikit-learn's logistic regression on frozen features, layer by layer."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pirl_plugin.evaluation.knn import percent_right
from pirl_plugin.evaluation.labeled_features import LabeledFeatures, labeled_features
from pirl_plugin.evaluation.layer_comparison import clearly_best, sample_rows
from pirl_plugin.evaluation.page import Accuracy
from pirl_plugin.images.groups import deal_groups, require_scikit_learn
from pirl_plugin.images.labeled import LabeledImages
from pirl_plugin.models.trunks import AnyTrunk
from pirl_plugin.system.failures import Refused

_COSTS = (1.0, 10.0, 100.0, 1e3, 1e4)  # scikit-learn's C, for row norms near 1
_FEW_IMAGES = 1000  # with fewer, five folds choose C and the layer, instead of one
_MOST_SEARCHED = 2000  # training images used to choose C
_STEPS = 100  # of L-BFGS; weakly regularized fits may stop here, and are measured as they are


@dataclass(frozen=True)
class LogisticFit:
    """A multinomial logistic regression.

    Attributes:
        weight: float64 ``(C, D)``.
        bias: float64 ``(C,)``.
        labels: int64 ``(C,)``, the label for each output.
        cost: scikit-learn's C, the most likely one on held-out training images.
        held_out_right: bool ``(H,)``, whether a fit to the other training images classifies each
            held-out image correctly. The held-out images do not depend on the features.
    """

    weight: Tensor
    bias: Tensor
    labels: Tensor
    cost: float
    held_out_right: Tensor

    def predict(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return labels, int64 ``(M,)``, and their probabilities for features ``(M, D)``."""
        scores = features.double() @ self.weight.T + self.bias
        return self.labels[scores.argmax(dim=1)], scores.softmax(dim=1).amax(dim=1)

    @property
    def held_out_top1(self) -> float:
        """Accuracy on held-out training images, percent."""
        return percent_right(self.held_out_right)


def fit_logistic(
    features: Tensor, labels: NDArray[np.int64], groups: NDArray[np.int64] | None = None
) -> LogisticFit:
    """Fit scikit-learn's logistic regression, with C chosen by held-out likelihood.

    Each column is centered and divided by its standard deviation, or by the mean deviation over
    columns if that is larger: a column that hardly varies in training may vary on other images,
    where its own small deviation would magnify it. With fewer images than dimensions, the
    regression is fitted in an orthonormal basis for the training images, where the solution is the
    same and takes less time. The returned weights include both steps.

    Args:
        features: floating ``(N, D)``.
        labels: int64 ``(N,)``.
        groups: int64 ``(N,)``; images with equal numbers are held out together. None: no groups.

    Raises:
        Refused: no class has two images, or two groups.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV

    splits = held_out_splits(labels, groups)
    rows = features.double()  # in float32, L-BFGS stops too early under strong regularization
    deviation, mean = torch.std_mean(rows, dim=0, correction=0)
    deviation = deviation.clamp(min=float(deviation.mean()) or 1.0)  # 0 if all images are equal
    scale = deviation * math.sqrt(len(deviation))  # so that C suits any number of columns
    rows = (rows - mean) / scale
    basis: Tensor | None = None
    searched = rows.numpy()
    if len(rows) < rows.shape[1]:
        # The basis is (D, N). float32 is exact enough for float16 features. The images that
        # the search fits come first: they need no more columns of the triangular factor.
        first = np.unique(np.concatenate([fitted for fitted, _ in splits]))
        order = np.concatenate([first, np.setdiff1d(np.arange(len(rows)), first)])
        basis, factor = torch.linalg.qr(rows[order].T.float())
        rows = factor.T.double()[np.argsort(order)]
        searched = rows[:, : len(first)].numpy()
    search = GridSearchCV(
        LogisticRegression(max_iter=_STEPS),
        {"C": _COSTS},
        scoring=_log_likelihood,
        cv=splits,
        refit=False,
        error_score="raise",
    )
    is_right = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        cost = search.fit(searched, labels).best_params_["C"]
        model: Any = LogisticRegression(C=cost, max_iter=_STEPS)
        for fitted, held_out in splits:
            model.fit(searched[fitted], labels[fitted])
            is_right.append(model.predict(searched[held_out]) == labels[held_out])
        model.fit(rows.numpy(), labels)
    weight = torch.from_numpy(model.coef_)
    bias = torch.from_numpy(model.intercept_)
    if len(weight) == 1:  # for two classes, scikit-learn only has scores for the second
        weight = torch.cat([torch.zeros_like(weight), weight])
        bias = torch.cat([torch.zeros_like(bias), bias])
    if basis is not None:
        weight = weight @ basis.T.double()
    weight = weight / scale
    return LogisticFit(
        weight=weight,
        bias=bias - weight @ mean,
        labels=torch.from_numpy(model.classes_),
        cost=cost,
        held_out_right=torch.from_numpy(np.concatenate(is_right)),
    )


def held_out_splits(
    labels: NDArray[np.int64], groups: NDArray[np.int64] | None = None
) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Return the rows to fit and to hold out: five folds, or a fifth of many images.

    Each class keeps an image to fit, so a class with a single image has none to hold out. Groups
    are held out together, and count like images.

    Raises:
        Refused: no class has two images, or two groups.
    """
    searched = np.array(sample_rows(labels, _MOST_SEARCHED))
    if groups is None:
        fold = _folds(labels[searched])
        unit = "images"
    else:
        fold = deal_groups(labels[searched], groups[searched])
        unit = "groups"
    splits = []
    for number in range(5 if _num_independent(labels, groups) < _FEW_IMAGES else 1):
        is_held_out = fold == number
        fitted = searched[~is_held_out]
        held_out = searched[is_held_out]
        held_out = held_out[np.isin(labels[held_out], labels[fitted])]
        if len(held_out) and len(np.unique(labels[fitted])) > 1:
            splits.append((fitted, held_out))
    if not splits:
        raise Refused(f"No class has two {unit}, so C cannot be chosen. Add labeled images.")
    return splits


def _num_independent(labels: NDArray[np.int64], groups: NDArray[np.int64] | None) -> int:
    """Return the number of groups, or of images without groups."""
    return len(labels if groups is None else np.unique(groups))


def _folds(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Deal each class's images to five folds, always in the same way; int64 ``(N,)``.

    A class's only image gets −1, the fold that is never held out.
    """
    rng = np.random.default_rng(0)
    fold = np.empty(len(labels), np.int64)
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        fold[rows] = np.arange(len(rows)) % 5 if len(rows) > 1 else -1
    return fold


def _log_likelihood(model: Any, rows: NDArray[np.float64], labels: NDArray[np.int64]) -> float:
    """Return the mean log-likelihood of labels; some classes may be absent from them.

    On few held-out images, several values of C often have the same accuracy, and the smallest of
    these gives probabilities near chance.
    """
    from sklearn.metrics import log_loss

    return -float(log_loss(labels, model.predict_proba(rows), labels=model.classes_))


@dataclass(frozen=True)
class LogisticFits:
    """Logistic regressions on a network's layers.

    Attributes:
        measured: the images' features.
        fits: layer → regression.
        predictions: layer → labels for the test images, int64 ``(M,)``, and their probabilities.
        chosen: the layer chosen on held-out training images.
        saved: the regression to save: the chosen layer's or, with ``fit_all``, one fitted to the
            test images, too.
    """

    measured: LabeledFeatures
    fits: dict[str, LogisticFit]
    predictions: dict[str, tuple[Tensor, Tensor]]
    chosen: str
    saved: LogisticFit

    @property
    def best(self) -> LogisticFit:
        """The regression on the chosen layer."""
        return self.fits[self.chosen]

    def is_right(self, layer: str) -> Tensor:
        """Return whether each test image is classified correctly, bool ``(M,)``."""
        return self.predictions[layer][0] == self.measured.test_labels

    def accuracy(self, layer: str) -> Accuracy:
        """Return a layer's accuracy on the test images."""
        is_right = self.is_right(layer)
        return Accuracy(layer, percent_right(is_right), len(is_right))

    def accuracy_by_class(self) -> list[Accuracy]:
        """Return the chosen layer's accuracy on each class's test images."""
        is_right = self.is_right(self.chosen)
        labels = self.measured.test_labels
        accuracies = []
        for label in labels.unique().tolist():
            of_class = is_right[labels == label]
            top1 = 100 * float(of_class.double().mean())
            name = self.measured.images.classes[label]
            accuracies.append(Accuracy(name, top1, len(of_class)))
        return accuracies


def fit_layers(
    trunk: AnyTrunk,
    images: LabeledImages,
    layers: Sequence[str],
    batch: int = 128,
    workers: int | None = None,
    fit_all: bool = False,
) -> LogisticFits:
    """Compute all layers' features once, and fit a logistic regression to each layer.

    Args:
        trunk: the network, in evaluation mode.
        images: training and test images; unlabeled ones are skipped.
        layers: layer names.
        batch: number of images at a time.
        workers: number of decoding processes; None: based on the numbers of cores and images.
        fit_all: also fit the chosen layer's regression to all images, for ``saved``.

    Raises:
        MissingPackage: scikit-learn is not installed.
        Refused: no class has two training images, or no images are readable.
    """
    require_scikit_learn()
    measured = labeled_features([trunk], layers, images, batch=batch, workers=workers)
    labels = measured.labels.numpy()
    groups = measured.groups
    num_train = measured.num_train
    train_labels = labels[:num_train]
    train_groups = None if groups is None else groups[:num_train]
    fits = {}
    predictions = {}
    for layer, features in zip(layers, measured.features, strict=True):
        print(f"logistic regression on {layer}, {features.shape[1]:,} dimensions", flush=True)
        train, test = measured.split(features)
        fits[layer] = fit_logistic(train, train_labels, train_groups)
        predictions[layer] = fits[layer].predict(test)
    measured.warn_about_equal_images()
    held_out_right = {layer: fit.held_out_right for layer, fit in fits.items()}
    chosen = choose_layer(held_out_right, _num_independent(train_labels, train_groups))
    saved = fits[chosen]
    if fit_all:
        saved = fit_logistic(measured.features[layers.index(chosen)], labels, groups)
    return LogisticFits(measured, fits, predictions, chosen, saved)


def choose_layer(held_out_right: dict[str, Tensor], num_train: int) -> str:
    """Return the layer with the best held-out accuracy; test images are not used.

    On few training images, the layer with the best accuracy is often not the best layer. With fewer
    than 1,000 images or groups, the last layer is kept unless another is clearly better.

    Args:
        held_out_right: layer → bool ``(H,)``, see :class:`LogisticFit`.
        num_train: number of training images, or of their groups.
    """
    last = [*held_out_right][-1]
    if num_train < _FEW_IMAGES:
        return clearly_best(held_out_right) or last
    return max(reversed(held_out_right), key=lambda layer: int(held_out_right[layer].sum()))
