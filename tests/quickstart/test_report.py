"""The report's statements follow from the measurements."""

from types import SimpleNamespace

import pytest
import torch

from pirl_plugin.evaluation.layer_comparison import LayerComparison
from pirl_plugin.evaluation.measures import LINE_KEY
from pirl_plugin.quickstart.evaluate import Evaluated
from pirl_plugin.quickstart.report import describe_accuracies, has_learned, summarize_log


@pytest.mark.parametrize(
    ("knn", "linear", "expected"),
    [
        ((7.0, 7.5), (15.5, 4.9), True),
        ((0.6, 6.4), (-1.0, 6.0), False),
        ((-10.0, 6.0), (0.0, 6.0), False),
        ((10.0, 6.0), (-9.0, 6.0), False),
    ],
)
def test_has_learned__follows_from_all_measures(knn, linear, expected):
    """kNN alone denied that PIRL learned, although linear accuracy rose by 15 points."""
    assert has_learned([knn, linear]) == expected


def test_accuracies__have_a_chart_each():
    top1 = {"knn_top1": 30.0, "linear_top1": 40.0}
    results = {"random": top1, "pirl": top1, "method": "jigsaw"}
    results["gain"] = {name: (0.0, 6.0) for name in top1}
    measured = SimpleNamespace(test_labels=torch.zeros(400))
    layers = LayerComparison(["PIRL", "Random"], {}, 400)
    shown = describe_accuracies(results, Evaluated(None, None, (layers, measured)))
    assert list(shown["charts"]) == ["kNN", "Linear classifier", "Layers by kNN, 400 test images"]


def test_log__is_summarized_by_epoch():
    lines = [{"ep": 0, "iter": step, "loss": 3.0 - step} for step in range(3)]
    measures = {"effective_rank": {"value": 1, "chance": 2}}
    lines += 2 * [{"ep": 1, "iter": 4, "loss": 1.0, LINE_KEY: measures}]  # after a resumption
    summary = summarize_log(lines)
    assert (summary["epochs"], summary["losses"]) == ([1, 2], [2, 1])
    assert (summary["measured_epochs"], summary["measures"]) == ([2], [measures])
