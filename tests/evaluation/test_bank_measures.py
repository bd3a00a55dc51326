"""Measures with their chance values, and when a collapse is reported."""

import pytest
import torch
from torch.nn.functional import cosine_similarity, normalize

from pirl_plugin.evaluation.measures import alignment, collapse, measure_bank

GENERATOR = torch.Generator().manual_seed(0)
ROWS = normalize(torch.randn(200, 32, generator=GENERATOR))
LABELS = torch.tensor([0, 0, 0, 1] * 50)


def draw(count=200):
    return torch.randn(count, 32, generator=GENERATOR)


def test_measures__are_those_that_the_tensors_allow():
    assert list(measure_bank(ROWS)) == ["effective_rank", "uniformity"]
    f, g, m = draw(), draw(), draw()
    measured = measure_bank(ROWS, LABELS, f, g, m, k=5)
    assert measured["knn_top1"].chance == 75
    assert measured["alignment"].value == alignment(f, g)
    others = [alignment(f, g.roll(i, dims=0)) for i in range(1, 200)]  # every pair of two images
    assert measured["alignment"].chance == pytest.approx(sum(others) / 199, rel=1e-4)
    assert measured["cos_g_m"].value == pytest.approx(float(cosine_similarity(g, m).mean()))
    one = measure_bank(ROWS, f=f[:1], g=g[:1])
    assert one["alignment"].chance == pytest.approx(one["alignment"].value)  # no second image


def test_knn__is_of_the_rows_with_a_class():
    rows = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0], [0.1, 1.0]])
    measured = measure_bank(rows, labels=torch.tensor([0, 0, 1, 1, -1]), k=1)
    assert measured["knn_top1"] == (100, 50)


def test_knn__is_left_out_of_one_class():
    """100 %, beside a chance of 100 %, for images that lie in no folders of classes."""
    measured = measure_bank(torch.randn(8, 4), labels=torch.zeros(8, dtype=torch.int64))
    assert list(measured) == ["effective_rank", "uniformity"]


def test_chance__is_what_random_tensors_give():
    """Random rows, embeddings and classes: every value is near its chance."""
    balanced = torch.tensor([0, 1, 2, 3]).repeat(50)
    measured = measure_bank(ROWS, balanced, draw(), draw(), draw())
    for name, (value, chance) in measured.items():
        allowed = {"knn_top1": 12, "effective_rank": 1}.get(name, 0.15)
        assert value == pytest.approx(chance, abs=allowed), name


def test_collapse__is_named_where_all_images_are_alike():
    f = draw()
    assert collapse(measure_bank(ROWS, f=f, g=draw())) is None
    one = torch.ones(200, 32) + 1e-4 * draw()
    assert "effective rank 1" in collapse(measure_bank(one))
    # Embeddings alone, while the bank still has its first rows: the loss cannot fall any more.
    assert collapse(measure_bank(ROWS, f=one, g=one)) is not None


def test_measure_bank__refuses_what_does_not_fit(subtests):
    for given in (
        {"f": torch.ones(3, 2), "g": torch.ones(3, 3)},
        {"f": torch.ones(3, 4), "m": torch.ones(3, 3)},
        {"labels": torch.ones(2)},
    ):
        with subtests.test(given=given), pytest.raises(ValueError, match="expected"):
            measure_bank(torch.eye(4), **given)
