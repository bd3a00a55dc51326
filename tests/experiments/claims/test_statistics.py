"""Intervals of paired differences, against Student's table and arithmetic by hand."""

import math

import pytest

from pirl_plugin.experiments.claims.statistics import t_interval

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
