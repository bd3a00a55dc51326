"""Bank measures with their chance values, and when a collapse is reported."""

import pytest
import torch
from torch.nn.functional import normalize

from pirl_plugin.evaluation.measures import collapse, measure_bank

GENERATOR = torch.Generator().manual_seed(0)
ROWS = normalize(torch.randn(200, 32, generator=GENERATOR))
LABELS = torch.tensor([0, 0, 0, 1] * 50)


def test_measures__depend_on_available_tensors():
    assert list(measure_bank(ROWS)) == ["effective_rank", "uniformity"]
    assert measure_bank(ROWS, LABELS, k=5)["knn_top1"].chance == 75


def test_knn__uses_only_labeled_rows():
    rows = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0], [0.1, 1.0]])
    measured = measure_bank(rows, labels=torch.tensor([0, 0, 1, 1, -1]), k=1)
    assert measured["knn_top1"] == (100, 50)


def test_knn__is_omitted_for_one_class():
    """Images without class folders would score 100 %, with a chance of 100 %."""
    measured = measure_bank(torch.randn(8, 4), labels=torch.zeros(8, dtype=torch.int64))
    assert list(measured) == ["effective_rank", "uniformity"]


def test_chance__matches_random_tensors():
    """For random rows and classes, every value is near chance."""
    balanced = torch.tensor([0, 1, 2, 3]).repeat(50)
    measured = measure_bank(ROWS, balanced)
    for name, (value, chance) in measured.items():
        allowed = {"knn_top1": 12, "effective_rank": 1}.get(name, 0.15)
        assert value == pytest.approx(chance, abs=allowed), name


def test_collapse__is_reported_for_identical_images():
    assert collapse(measure_bank(ROWS)) is None
    one = torch.ones(200, 32) + 1e-4 * torch.randn(200, 32, generator=GENERATOR)
    assert "effective rank 1" in collapse(measure_bank(one))


def test_measure_bank__refuses_invalid_shapes():
    for rows, labels in ((torch.eye(4), torch.ones(2)), (torch.ones(4), None)):
        with pytest.raises(ValueError, match="expected"):
            measure_bank(rows, labels)
