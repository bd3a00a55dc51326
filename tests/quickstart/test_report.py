"""What the report says follows from what was measured."""

from collections import Counter

import pytest

from pirl_plugin.quickstart.report import accuracy_facts


def _results(random, pirl):
    return {
        "random": {"knn_top1": random, "linear_top1": random},
        "pirl": {"knn_top1": pirl, "linear_top1": pirl},
        "seed": 0, "epochs": 3, "images_per_s": 250.0, "seconds": 100.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("random", "pirl", "kind", "gain"),
    [
        (28.0, 91.0, "good", "+63.0 ± 5.2 points"),
        (30.0, 30.6, "open", "+0.6 ± 6.4 points"),
        (30.0, 20.0, "bad", "−10.0 ± 6.0 points"),
    ],
)
def test_accuracy_facts__the_verdict_follows_from_the_interval(random, pirl, kind, gain):
    # 400 images: 196 sqrt((0.3 * 0.7 + 0.306 * 0.694) / 400) = 6.4 points.
    facts = accuracy_facts(_results(random, pirl), Counter({"a": 100, "b": 300}))
    assert (facts["kind"], facts["gain"], facts["chance"]) == (kind, gain, 75)
