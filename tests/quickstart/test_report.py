"""What the report says follows from what was measured."""

from collections import Counter

import pytest

from pirl_plugin.quickstart.report import accuracy_facts, loss_facts


def _results(random, pirl):
    return {
        "random": {"knn_top1": random, "linear_top1": random},
        "pirl": {"knn_top1": pirl, "linear_top1": pirl},
        "seed": 0, "epochs": 3, "images_per_s": 250.0, "seconds": 100.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("random", "pirl", "kind", "words"),
    [
        (28.0, 91.0, "good", "PIRL learnt"),
        (30.0, 30.6, "open", "does not show that PIRL learnt: +0.6 ± 6.4 points"),
        (30.0, 20.0, "bad", "worse than random weights: −10.0"),
    ],
)
def test_accuracy_facts__the_verdict_follows_from_the_interval(random, pirl, kind, words):
    # 400 images: 196 sqrt((0.3 * 0.7 + 0.306 * 0.694) / 400) = 6.4 points.
    facts = accuracy_facts(_results(random, pirl), Counter({"a": 100, "b": 300}))
    assert facts["kind"] == kind
    assert words in facts["verdict"]
    assert facts["chance"] == 75


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([6.5, 6.0, 5.5], "fell from 6.50 to 5.50."),
        ([6.0, 6.5], "rose from 6.00 to 6.50: it does not show learning"),
        ([6.0, 6.0], "did not change"),
        ([6.0, float("nan"), 5.0], "from 6.00 to 5.00, through numbers that are not finite"),
        ([float("nan")], "diverged"),
    ],
)
def test_loss_facts__say_what_the_loss_did(values, words):
    assert words in loss_facts(list(enumerate(values)))
