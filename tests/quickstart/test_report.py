"""The report's statements follow from the measurements."""

import numpy as np
import pytest
import torch

from pirl_plugin.evaluation.layer_comparison import LayerComparison
from pirl_plugin.evaluation.measures import LINE_KEY
from pirl_plugin.evaluation.pictures import choose_display, page_images
from pirl_plugin.images.folders import FolderSource
from pirl_plugin.images.reading import Reading
from pirl_plugin.quickstart import report
from pirl_plugin.quickstart.images import Evaluated
from pirl_plugin.quickstart.report import accuracies, compare_neighbors, outcome, summarize_log


@pytest.mark.parametrize(
    ("knn", "linear", "expected"),
    [
        ((7.0, 7.5), (15.5, 4.9), "good"),
        ((0.6, 6.4), (-1.0, 6.0), "open"),
        ((-10.0, 6.0), (0.0, 6.0), "bad"),
        ((10.0, 6.0), (-9.0, 6.0), "mixed"),
    ],
)
def test_outcome__follows_from_all_measures(knn, linear, expected):
    """kNN alone denied that PIRL learned, although linear accuracy rose by 15 points."""
    assert outcome([knn, linear]) == expected


def test_accuracies__use_most_frequent_class_as_chance():
    top1 = {"knn_top1": 30.0, "linear_top1": 40.0}
    results = {"random": top1, "pirl": top1, "method": "jigsaw"}
    results["gain"] = {name: (0.0, 6.0) for name in top1}
    labels = torch.tensor([1, 1, 0] + [0] * 100 + [1] * 300)
    layers = LayerComparison(["PIRL", "Random"], {}, 400)
    shown = accuracies(results, Evaluated(None, 3, {}, labels, layers))
    assert shown["chance"] == 75
    assert list(shown["charts"]) == ["kNN", "Linear classifier", "Layers by kNN, 400 test images"]


def test_neighbors__are_counted(image_folder, monkeypatch):
    monkeypatch.setattr(report, "_NEIGHBORS", 3)
    source = FolderSource(image_folder / "train")  # 10 ants, then 10 bees
    # The ants are alike. The first bee is closer to them than to the second bee.
    pirl = torch.tensor([[1, 0.5, 0]] * 3 + [[0, 1, 0], [0, 0, 1]])
    features = {
        "pirl": torch.cat([pirl, pirl[[3, 0]]]),
        "random": torch.cat([pirl.flip(0), pirl[[3, 0]]]),
    }
    rows = [0, 1, 2, 10, 11, 10, 0]  # the last two are test images
    images = page_images(source, rows, choose_display(source, Reading()))
    labels = torch.from_numpy(source.labels())[rows]
    neighbors = compare_neighbors(Evaluated(images, 5, features, labels))
    assert neighbors["queries"] == {5: 0, 6: 1}
    nearest = neighbors["nearest"]["pirl"].tolist()
    assert sorted(nearest[1]) == [0, 1, 2]
    assert nearest[0][0] == 3
    # Among three neighbors for each of two queries. In reverse order, the three images with equal
    # features are one ant and two bees.
    assert neighbors["same_class"][0] == pytest.approx(100 * 4 / 6)
    assert set(neighbors["nearest"]["random"][1].tolist()) == {2, 3, 4}


def test_neighbors__exclude_query_if_unlabeled():
    features = {name: torch.randn(20, 4) for name in ("pirl", "random")}
    images = page_images(None, range(20), None, np.full(20, ""))
    neighbors = compare_neighbors(Evaluated(images, 20, features))
    assert neighbors["same_class"] == []
    assert neighbors["queries"] == {0: 0, 10: 10}
    for rows in neighbors["nearest"].values():
        assert rows.shape == (20, 6)
        assert not (rows == torch.arange(20)[:, None]).any()


def test_log__is_summarized_by_epoch():
    lines = [{"iter": step, "loss": 3.0 - number} for number, step in enumerate((1, 2, 4))]
    measures = {"effective_rank": {"value": 1, "chance": 2}}
    lines += 2 * [{"iter": 4, "loss": 1.0, "ep": 1, LINE_KEY: measures}]  # after a resumption
    summary = summarize_log(lines, 2)
    assert summary["loss_epochs"] == [0.5, 1, 2]  # steps 1, 2 and 4 out of 4
    assert summary["losses"] == [3, 2, 1]
    assert (summary["measured_epochs"], summary["measures"]) == ([2], [measures])


@pytest.mark.filterwarnings("error")
def test_log__may_have_one_step():
    assert summarize_log([{"iter": 0, "loss": 3.0}], 1)["loss_epochs"] == [0]
