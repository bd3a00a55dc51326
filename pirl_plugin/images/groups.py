"""Groups of images that belong together, such as those of one patient, plate or video."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray

from pirl_plugin.system.failures import MissingPackage

_MOST_FOLDS = 5


def require_scikit_learn() -> None:
    """Check that scikit-learn is installed.

    Raises:
        MissingPackage: scikit-learn is not installed.
    """
    try:
        import sklearn  # noqa: F401
    except ImportError:
        raise MissingPackage("scikit-learn is not installed: pip install scikit-learn") from None


def deal_groups(labels: NDArray[np.int64], groups: NDArray[np.int64]) -> NDArray[np.int64]:
    """Deal groups of images to at most five folds with similar shares of each class.

    There are no more folds than the class in most groups has groups, so that each fold can have
    images of this class.

    Args:
        labels: int64 ``(N,)``.
        groups: int64 ``(N,)``; images with equal numbers stay together.

    Returns:
        Fold numbers, int64 ``(N,)``, always dealt in the same way.

    Raises:
        MissingPackage: scikit-learn is not installed.
    """
    require_scikit_learn()
    from sklearn.model_selection import StratifiedGroupKFold

    pairs = np.unique(np.stack([labels, groups]), axis=1)
    num_folds = min(_MOST_FOLDS, int(np.unique(pairs[0], return_counts=True)[1].max()))
    fold = np.zeros(len(labels), np.int64)
    if num_folds == 1:
        return fold
    splitter = StratifiedGroupKFold(num_folds, shuffle=True, random_state=0)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The least populated class")
        for number, (_, rows) in enumerate(splitter.split(labels, labels, groups)):
            fold[rows] = number
    return fold


def hold_out_groups(labels: NDArray[np.int64], groups: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Choose groups for testing: the fold with most classes that training images have, too.

    Among several, it is the one nearest to a fifth of the images.

    Returns:
        bool ``(N,)``. Each class keeps a group for training.
    """
    fold = deal_groups(labels, groups)
    candidates = []
    for number in range(fold.max() + 1):
        is_test = fold == number
        only_tested = np.setdiff1d(labels[is_test], labels[~is_test])
        is_test &= ~np.isin(groups, groups[np.isin(labels, only_tested)])
        candidates.append(is_test)

    def quality(is_test: NDArray[np.bool_]) -> tuple[int, float]:
        return len(np.unique(labels[is_test])), -abs(float(is_test.mean()) - 1 / _MOST_FOLDS)

    return max(candidates, key=quality)
