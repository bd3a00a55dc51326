"""Measures compared with loops over their definitions, and at their limits."""

import math

import pytest
import torch
from torch.nn.functional import normalize

from pirl_plugin import alignment, effective_rank, leave_one_out_accuracy, uniformity
from pirl_plugin.evaluation.measures import measure_bank, measure_random_rows, paired_gain

pytestmark = pytest.mark.tensors


GENERATOR = torch.Generator().manual_seed(0)
FEATURES = torch.randn(40, 6, generator=GENERATOR)
OTHERS = FEATURES + torch.randn(40, 6, generator=GENERATOR)
LABELS = torch.randint(0, 4, (40,), generator=GENERATOR) * 7


def loop_knn(features, labels, k, temperature):
    """Compare each row with all others, one by one, in plain Python."""
    correct = 0
    for i, (row, label) in enumerate(zip(features, labels.tolist(), strict=True)):
        scores = [
            (float(row @ other / row.norm() / other.norm()), int(labels[j]))
            for j, other in enumerate(features)
            if j != i
        ]
        votes = dict.fromkeys(labels.tolist(), 0.0)
        for score, voted in sorted(scores, reverse=True)[:k]:
            votes[voted] += math.exp(score / temperature)
        correct += max(votes, key=votes.get) == label
    return 100 * correct / len(features)


def test_knn__matches_loop(subtests):
    for k in (1, 3, 20, 100):
        with subtests.test(k=k):
            found = leave_one_out_accuracy(FEATURES, LABELS, k=k, temperature=0.2)
            assert found == pytest.approx(loop_knn(FEATURES, LABELS, k, 0.2))


def test_knn__excludes_the_row_itself():
    same = torch.ones(6, 3)  # every other row is as near as the row itself
    labels = torch.arange(6)
    assert leave_one_out_accuracy(same, labels, k=1) == 0
    with pytest.raises(ValueError, match="k = 0 with 1 rows: expected at least one"):
        leave_one_out_accuracy(same[:1], labels[:1])


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
    words = r"features have shape .* flatten each image's features"
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
    with pytest.raises(ValueError, match="for the same images"):
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
    with pytest.raises(ValueError, match="features hold NaN"):
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
