"""Measures compared with their definitions, at their limits, and by chance; a collapse."""

import math

import pytest
import torch
from torch.nn.functional import normalize

from pirl_plugin import alignment, effective_rank, uniformity
from pirl_plugin.evaluation.measures import (
    collapse,
    measure_bank,
    measure_random_rows,
    paired_gain,
)

pytestmark = pytest.mark.tensors


GENERATOR = torch.Generator().manual_seed(0)
FEATURES = torch.randn(40, 6, generator=GENERATOR)
OTHERS = FEATURES + torch.randn(40, 6, generator=GENERATOR)
ROWS = normalize(torch.randn(200, 32, generator=GENERATOR))
LABELS = torch.tensor([0, 0, 0, 1] * 50)


@pytest.mark.parametrize("features", [FEATURES, FEATURES[:4], FEATURES.double()])
def test_effective_rank__matches_singular_value_entropy(features):
    values = torch.linalg.svdvals(features.double())
    shares = [float(v / values.sum()) for v in values]
    expected = math.exp(-sum(s * math.log(s) for s in shares))
    assert effective_rank(features) == pytest.approx(expected, rel=1e-6)


def test_effective_rank__reaches_limits():
    line = torch.randn(50, 1) * torch.randn(1, 128)
    assert effective_rank(line) == pytest.approx(1, abs=1e-3)
    assert effective_rank(torch.eye(16)) == pytest.approx(16)
    assert effective_rank(torch.zeros(5, 3)) == 0
    assert 90 < measure_random_rows(2048, 128)[0] < 128


@pytest.mark.parametrize("chunk", [7, 512])
def test_uniformity__matches_all_pairs(chunk):
    unit = normalize(FEATURES.double())
    distances = torch.pdist(unit)  # each pair once
    expected = float((-2 * distances**2).exp().mean().log())
    assert uniformity(FEATURES, chunk=chunk) == pytest.approx(expected, rel=1e-5)


def test_uniformity__matches_theory_for_random_vectors():
    # On the sphere, exp(2t x·y) has mean 0F1(; D/2; t²), here with t = 2.
    # D = 3: sinh(4) / 4 = 6.822, its log 1.920 - 4.
    # D = 128: 1 + 4/64 + 16/(2·64·65) + … = 1.0645, its log 0.062 - 4.
    assert measure_random_rows(2000, 3)[1] == pytest.approx(-2.080, abs=0.02)
    assert measure_random_rows(2000, 128)[1] == pytest.approx(-3.938, abs=0.02)
    assert uniformity(torch.ones(4, 3)) == pytest.approx(0, abs=1e-6)


def test_alignment__is_mean_pair_distance():
    distances = (normalize(FEATURES) - normalize(OTHERS)).norm(dim=1)
    expected = float((distances**2).mean())
    assert alignment(FEATURES, OTHERS) == pytest.approx(expected, rel=1e-5)
    assert alignment(FEATURES, 3 * FEATURES) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("measure", [effective_rank, uniformity, lambda x: alignment(x, x)])
def test_measures__refuse_invalid_shapes(measure, subtests):
    words = r"features have shape .* Flatten each image's features"
    for shape in ((3,), (3, 2, 2)):
        with subtests.test(shape=shape), pytest.raises(ValueError, match=words):
            measure(torch.ones(shape))


def test_measures__refuse_too_few_rows():
    with pytest.raises(ValueError, match="features have 1 rows: expected at least 2"):
        uniformity(torch.ones(1, 3))
    for measure in (effective_rank, lambda x: alignment(x, x)):
        with pytest.raises(ValueError, match="features have 0 rows: expected at least 1"):
            measure(torch.ones(0, 3))


def test_paired_measures__refuse_different_shapes():
    with pytest.raises(ValueError, match="for both tensors"):
        alignment(FEATURES, OTHERS[:3])


@pytest.mark.parametrize(
    "measure",
    [
        effective_rank,
        uniformity,
        lambda x: alignment(x, torch.ones(4, 3)),
        lambda x: alignment(torch.ones(4, 3), x),
        measure_bank,
    ],
)
def test_measures__refuse_non_finite_values(measure):
    features = torch.ones(4, 3)
    features[1, 2] = torch.nan
    with pytest.raises(ValueError, match="features have NaN"):
        measure(features)


def test_paired_gain__uses_only_differing_answers():
    """For networks with 60 % and 50 %, answers on which they agree carry no information."""
    right = torch.arange(100) < 60
    near = torch.arange(100) < 50  # 10 of 100 answers differ: all are gained
    gain, error = paired_gain(right, near)
    # √((0.1 − 0.1²) / 100) = 0.03: 1.96 · 3 points, plus the correction of 1 point
    assert (gain, error) == (pytest.approx(10), pytest.approx(6.88))
    far = torch.arange(100) >= 50  # 90 of 100 answers differ: 50 gained, 40 lost
    gain, error = paired_gain(right, far)
    # √((0.9 − 0.1²) / 100) = 0.0943
    assert (gain, error) == (pytest.approx(10), pytest.approx(19.49, abs=0.01))


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
