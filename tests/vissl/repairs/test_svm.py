"""VISSL's SVMs on current NumPy."""

import numpy as np
import pytest


def test_average_precision__is_a_correct_number():
    from vissl.utils.svm_utils.evaluate import get_precision_recall

    # Ranked by score: hit, miss, hit, miss. Precision at the hits: 1, 2/3 → AP = (1 + 2/3) / 2
    targets, scores = np.array([1, -1, 1, -1]), np.array([0.9, 0.8, 0.7, 0.1])
    *_, average = get_precision_recall(targets, scores)
    assert isinstance(average, float)
    assert average == pytest.approx(5 / 6)
