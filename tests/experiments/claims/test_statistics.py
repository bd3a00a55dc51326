"""Intervals of paired differences, against Student's table and arithmetic by hand."""

import math

import numpy as np
import pytest

from pirl_plugin.experiments.claims.statistics import t_interval, verdict_of_all

# Student's t, two-sided 95 %: 12.706 at 1 degree of freedom, 4.303 at 2, 3.182 at 3.


def test_t_interval__of_three_seeds_by_hand():
    # mean 5; deviations −1, 0, 1: variance 2 / 2 = 1; error 1 / √3 = 0.57735;
    # 4.30265 · 0.57735 = 2.48414
    found = t_interval([4.0, 5.0, 6.0])
    assert found.mean == pytest.approx(5)
    assert found.standard_error == pytest.approx(0.57735, abs=1e-5)
    assert (found.low, found.high) == pytest.approx((2.51586, 7.48414), abs=1e-4)
    assert (found.verdict, found.seeds) == ("held", 3)


def test_t_interval__of_four_seeds_by_hand():
    # mean 1; deviations −1, −1, 1, 1: variance 4 / 3; error √(4/3) / 2 = 0.57735; 3.18245 · it
    found = t_interval([0.0, 0.0, 2.0, 2.0])
    assert (found.low, found.high) == pytest.approx((1 - 1.83739, 1 + 1.83739), abs=1e-4)
    assert found.verdict == "undecided"


@pytest.mark.parametrize(
    ("differences", "verdict"),
    [
        ([-4.0, -5.0, -6.0], "not held"),
        ([2.4, 2.4, 2.4], "held"),
        ([1.4, 2.4, 3.4], "undecided"),  # 2.4 − 2.484 < 0
        ([1.6, 2.6, 3.6], "held"),  # 2.6 − 2.484 > 0
        ([10.0, 10.1], "undecided"),  # two seeds decide nothing
        ([10.0], "undecided"),
        ([], "undecided"),
    ],
)
def test_verdict__is_the_intervals(differences, verdict):
    assert t_interval(differences).verdict == verdict


def test_t_interval__of_one_seed_has_a_mean_alone():
    found = t_interval([3.0])
    assert found.mean == 3
    assert math.isnan(found.standard_error)
    assert math.isnan(t_interval([]).mean)


@pytest.mark.parametrize(
    ("several", "verdict"),
    [
        ([[4.0, 5.0, 6.0]], "held"),
        ([[4.0, 5.0, 6.0], [2.0, 2.1, 2.2]], "held"),
        ([[4.0, 5.0, 6.0], [1.4, 2.4, 3.4]], "undecided"),
        ([[4.0, 5.0, 6.0], [-40.0, -50.0, -60.0]], "not held"),
        # −3 ± 2.484 at 95 %; ± 3.582 at 97.5 %, the level of one of two
        ([[-2.0, -3.0, -4.0]], "not held"),
        ([[4.0, 5.0, 6.0], [-2.0, -3.0, -4.0]], "undecided"),
        ([[], []], "undecided"),
    ],
)
def test_verdict_of_all__needs_each(several, verdict):
    assert verdict_of_all(several) == verdict


@pytest.mark.parametrize("seeds", [3, 10])
@pytest.mark.parametrize("rivals", [1, 4])
def test_verdict_of_all__is_seldom_wrong_where_all_are_equal(seeds, rivals):
    # All have the same mean: below 0 by chance in at most 2.5 %, the tail of a 95 % interval.
    draw, trials = np.random.default_rng(0), 1_000
    found = []
    for _ in range(trials):
        one, *others = draw.normal(size=(1 + rivals, seeds))
        found.append(verdict_of_all([(one - other).tolist() for other in others]))
    error = 3 * math.sqrt(0.025 * 0.975 / trials)
    assert 0.005 < found.count("not held") / trials < 0.025 + error
    assert found.count("held") / trials < 0.025 + error
