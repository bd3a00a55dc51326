"""scikit-learn's logistic regression on the frozen features of each layer."""

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
from torch.nn.functional import cross_entropy

from pirl_plugin.checkpoints.classifier import Classifier
from pirl_plugin.evaluation.features import labelled_features
from pirl_plugin.evaluation.layer_comparison import draw_rows
from pirl_plugin.images.opening import LabelledImages
from pirl_plugin.models.trunks import AnyTrunk
from pirl_plugin.system.failures import MissingPackage, Refused

# Inverse strengths of the regularisation, the strongest first: each fit begins at the last one.
_COSTS = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
_MOST_CHOOSING = 2000  # training images that choose C
_STEPS = 100  # of L-BFGS; a weakly regularised fit may stop there, and is measured as it is


@dataclass(frozen=True)
class LayerFit:
    """The logistic regression of one layer.

    Attributes:
        classifier: of the layer's features, fitted to all training images.
        cost: scikit-learn's C, the best on the held-out training images.
        held_out_top1: of the fit to the other training images, on the held-out ones, percent.
        test_top1: of the classifier, on the test images, percent.
    """

    classifier: Classifier
    cost: float
    held_out_top1: float
    test_top1: float


@dataclass(frozen=True)
class LogisticFits:
    """The logistic regressions of a network's layers.

    Attributes:
        fits: one for each layer.
        num_train: number of training images that have a class and can be read.
        num_held_out: number of those that chose C and the layer.
        num_test: number of test images that have a class and can be read.
    """

    fits: list[LayerFit]
    num_train: int
    num_held_out: int
    num_test: int

    @property
    def best(self) -> LayerFit:
        """The fit that is best on the held-out training images; the test images choose nothing.

        Few held-out images often give several layers the same accuracy: the last of these it is.
        """
        return max(reversed(self.fits), key=lambda fit: fit.held_out_top1)

    def table(self) -> str:
        """Return a line for each layer."""
        lines = [
            f"Logistic regression, top-1 in percent ({self.num_train:,} training and "
            f"{self.num_test:,} test images; {self.num_held_out:,} of the training images, held "
            f"out, choose C and the layer):",
            f"  {'':8}{'held out':>10}{'test':>8}{'C':>10}",
        ]
        for fit in self.fits:
            lines.append(
                f"  {fit.classifier.layer:8}{fit.held_out_top1:10.2f}{fit.test_top1:8.2f}"
                f"{fit.cost:10g}"
            )
        return "\n".join(lines)


def require_scikit_learn() -> None:
    """Refuse to begin without scikit-learn.

    Raises:
        MissingPackage: it is not installed.
    """
    try:
        import sklearn  # noqa: F401
    except ImportError:
        raise MissingPackage("scikit-learn is not installed: pip install scikit-learn") from None


def fit_layers(trunk: AnyTrunk, images: LabelledImages, layers: Sequence[str]) -> LogisticFits:
    """Compute the features of layers once, and fit a logistic regression to each layer's.

    Args:
        trunk: the network, in evaluation mode.
        images: training and test images; those without a class are left out.
        layers: names of layers.

    Raises:
        MissingPackage: scikit-learn is not installed.
        Refused: no class has two training images, or no images can be read.
    """
    require_scikit_learn()
    measured = labelled_features([trunk], layers, images)
    train_classes = measured.train_labels.numpy()
    test_classes = measured.test_labels.numpy()
    choosing = draw_rows(train_classes, _MOST_CHOOSING)
    is_held_out = hold_out(train_classes[choosing])
    if not is_held_out.any():
        raise Refused(
            f"{images.train.path}: expected two or more images of a class, to choose C; add images"
        )
    fits = []
    for layer, (train, test) in zip(layers, measured.features, strict=True):
        print(f"fits a logistic regression to {layer}, {train.shape[1]:,} dimensions", flush=True)
        chosen_from = train[choosing]
        cost, held_out_top1 = choose_cost(chosen_from, train_classes[choosing], is_held_out)
        regression = FeatureRegression(train, train_classes)
        regression.fit(cost)
        top1 = regression.top1(test, test_classes)
        classifier = regression.classifier(images.classes, layer)
        fits.append(LayerFit(classifier, cost, round(held_out_top1, 2), round(top1, 2)))
    return LogisticFits(fits, len(train_classes), int(is_held_out.sum()), len(test_classes))


def hold_out(labels: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Choose a fifth of the images of each class, the same in each call.

    A class of one image has none; a class of two has one.

    Args:
        labels: int64 ``(N,)``.

    Returns:
        Bool ``(N,)``.

    Example:
        >>> int(hold_out(np.array([0, 0, 1, 0, 0, 0])).sum())
        1
    """
    rng = np.random.default_rng(0)
    is_held_out = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        of_class = rng.permutation(np.flatnonzero(labels == label))
        is_held_out[of_class[1::5]] = True
    return is_held_out


class FeatureRegression:
    """scikit-learn's logistic regression of standardised features.

    Where there are fewer images than dimensions, it is fitted to a triangular matrix with the same
    products of images: its penalty is the same there, its solution too (the representer theorem),
    and it is many times faster.

    Args:
        features: floating ``(N, D)``, of the training images.
        labels: int64 ``(N,)``.
    """

    def __init__(self, features: Tensor, labels: NDArray[np.int64]) -> None:
        from sklearn.linear_model import LogisticRegression

        deviation, mean = torch.std_mean(features.double(), dim=0, correction=0)
        self.mean = mean
        self.deviation = deviation.clamp(min=1e-6)
        self.labels = labels
        # In float32, L-BFGS ends too early if the regularisation is strong.
        self.scaled = self._scale(features)
        self.triangle: Tensor | None = None  # (N, N)
        if len(features) < features.shape[1]:
            scaled = self.scaled.numpy()
            products = torch.from_numpy(scaled @ scaled.T)  # NumPy computes half of them
            # They are singular: features have the mean 0, and images may be the same.
            products.diagonal().add_(1e-11 * float(products.trace()) + 1e-11)
            self.triangle = torch.linalg.cholesky(products)
        self.model: Any = LogisticRegression(max_iter=_STEPS, warm_start=True)

    def _scale(self, features: Tensor) -> Tensor:
        """Return features with the mean 0 and the deviation 1 in the training, float64 (N, D)."""
        return (features.double() - self.mean) / self.deviation

    def fit(self, cost: float) -> None:
        """Fit it, beginning at the fit before.

        Args:
            cost: scikit-learn's C.
        """
        from sklearn.exceptions import ConvergenceWarning

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            inputs = self.scaled if self.triangle is None else self.triangle
            self.model.set_params(C=cost).fit(inputs.numpy(), self.labels)

    def weights(self) -> tuple[Tensor, Tensor]:
        """Return a weight and a bias for each class, float64 (C, D), (C,), of scaled features."""
        weight = torch.from_numpy(self.model.coef_)
        bias = torch.from_numpy(self.model.intercept_)
        if len(weight) == 1:  # of two classes, scikit-learn has only the scores of the second
            weight = torch.cat([torch.zeros_like(weight), weight])
            bias = torch.cat([torch.zeros_like(bias), bias])
        if self.triangle is not None:
            of_images = torch.linalg.solve_triangular(self.triangle.T, weight.T, upper=True)
            weight = of_images.T @ self.scaled
        return weight, bias

    def scores(self, features: Tensor) -> Tensor:
        """Return the scores of the classes of ``model.classes_``, float64 ``(M, C)``."""
        weight, bias = self.weights()
        return self._scale(features) @ weight.T + bias

    def top1(self, features: Tensor, labels: NDArray[np.int64]) -> float:
        """Return the share of images that it classifies correctly, percent.

        Args:
            features: floating ``(M, D)``, of other images.
            labels: int64 ``(M,)``.
        """
        answers = self.scores(features).argmax(dim=1)
        return 100 * float((self.model.classes_[answers.numpy()] == labels).mean())

    def classifier(self, names: Sequence[str], layer: str) -> Classifier:
        """Return the classifier of features as the layer has them.

        Args:
            names: names of the classes.
            layer: name of the layer.
        """
        weight, bias = self.weights()
        weight = weight / self.deviation
        # A class whose images cannot be read has no scores.
        classes = [names[label] for label in self.model.classes_]
        bias = bias - weight @ self.mean
        return Classifier(weight.float(), bias.float(), classes, layer)


def choose_cost(
    features: Tensor, labels: NDArray[np.int64], is_held_out: NDArray[np.bool_]
) -> tuple[float, float]:
    """Return the C of the least cross-entropy on held-out images, and its top-1 there, percent.

    Of a few held-out images, many C have equal accuracies, and the strongest of these
    regularisations has probabilities near chance. The first C that is worse than the one before
    ends the search.

    Args:
        features: floating ``(N, D)``.
        labels: int64 ``(N,)``.
        is_held_out: bool ``(N,)``, of :func:`hold_out`.
    """
    regression = FeatureRegression(features[~is_held_out], labels[~is_held_out])
    tested = features[is_held_out]
    # Each class of a held-out image has others that are not held out.
    targets = torch.from_numpy(
        np.searchsorted(np.unique(labels[~is_held_out]), labels[is_held_out])
    )
    best_cost = _COSTS[0]
    best_top1 = 0.0
    least_loss = math.inf
    for cost in _COSTS:
        regression.fit(cost)
        loss = float(cross_entropy(regression.scores(tested), targets))
        if loss > least_loss:
            break
        least_loss = loss
        best_cost = cost
        best_top1 = regression.top1(tested, labels[is_held_out])
    return best_cost, best_top1
