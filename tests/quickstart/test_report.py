"""The report's statements follow from the measurements."""

import numpy as np
import pytest
import torch

from pirl_plugin.evaluation import page
from pirl_plugin.evaluation.pictures import ShownImages, choose_display, show_images
from pirl_plugin.images.classes import NO_CLASS
from pirl_plugin.images.folders import FolderSource
from pirl_plugin.images.reading import Reading
from pirl_plugin.quickstart import report
from pirl_plugin.quickstart.images import Evaluated
from pirl_plugin.quickstart.report import accuracy_facts, nearest_neighbors


def test_verdict__follows_from_all_measures(subtests):
    """kNN alone denied that PIRL learned, although linear accuracy rose by 15 points."""
    for knn, linear, kind, text in (
        ((7.0, 7.5), (15.5, 4.9), "good", "which may be chance. Linear classifier: +15.5 ± 4.9"),
        ((0.6, 6.4), (-1.0, 6.0), "open", "does not show that PIRL learned"),
        ((-10.0, 6.0), (0.0, 6.0), "bad", "worse than random weights. kNN: -10.0 ± 6.0 points."),
        ((10.0, 6.0), (-9.0, 6.0), "open", "the measures differ. kNN: +10.0 ± 6.0 points."),
    ):
        with subtests.test(text):
            verdict = report.verdict({"knn_top1": knn, "linear_top1": linear})
            assert verdict.kind == kind
            assert text in verdict.text


def test_accuracy_facts__use_most_frequent_class_as_chance():
    accuracies = {"knn_top1": 30.0, "linear_top1": 40.0}
    results = {"random": accuracies, "pirl": accuracies, "method": "jigsaw"}
    results["gain"] = {name: (0.0, 6.0) for name in accuracies}
    layers = page.Chart("Layers by kNN", [])
    facts = accuracy_facts(
        results, torch.tensor([1, 1, 0]), torch.tensor([0] * 100 + [1] * 300), layers
    )
    assert facts["chance"] == 75
    assert [chart.title for chart in facts["charts"]] == [
        "kNN",
        "Linear classifier",
        "Layers by kNN",
    ]


def test_neighbors__are_counted(image_folder, monkeypatch):
    monkeypatch.setattr(page, "NUM_NEIGHBORS", 3)
    source = FolderSource(image_folder / "train")  # 10 ants, then 10 bees
    # The ants are alike. The first bee is closer to them than to the second bee.
    pirl = torch.tensor([[1, 0.5, 0]] * 3 + [[0, 1, 0], [0, 0, 1]])
    features = {"pirl": (pirl, pirl[[3, 0]]), "random": (pirl.flip(0), pirl[[3, 0]])}
    rows = [0, 1, 2, 10, 11, 10, 0]  # the last two are test images
    shown = show_images(source, rows, choose_display(source, Reading()))
    neighbors = nearest_neighbors(Evaluated(shown, 2, features, None))
    assert [query.picture.label for query in neighbors.queries] == ["bees", "ants"]
    assert [query.num_same("PIRL") for query in neighbors.queries] == [1, 3]
    # In reverse order, the three images with equal features are one ant and two bees.
    assert neighbors.queries[1].num_same("Random") == 1
    labels = [near.label for near in neighbors.queries[0].neighbors["PIRL"]]
    assert labels.count("bees") == 1
    assert neighbors.count == 3
    assert neighbors.shares[0] == pytest.approx(
        100 * 4 / 6
    )  # among three neighbors for each of two queries


def test_neighbors__exclude_query_if_unlabeled(image_folder):
    source = FolderSource(image_folder / "train")
    features = {name: 2 * (torch.randn(len(source), 4),) for name in ("pirl", "random")}
    labels = torch.full((len(source),), NO_CLASS)
    display = choose_display(source, Reading())
    shown = ShownImages(source, range(len(source)), labels, [], display)
    neighbors = nearest_neighbors(Evaluated(shown, 0, features, None))
    assert neighbors.shares == []
    for query in neighbors.queries:
        assert query.picture.image not in [near.image for near in query.neighbors["PIRL"]]
        assert len(query.neighbors["PIRL"]) == 6


def test_plots__show_measures_present_in_every_epoch():
    names = list(report._MEASURES)
    measures = {epoch: {n: {"value": 1, "chance": 0} for n in names} for epoch in (1, 2)}
    del measures[2][names[0]]
    plots = report._plots(np.array([[1, 3.0], [2, 2.0], [4, 1.0]]), 2, measures)
    titles = [plot["title"] for plot in plots]
    assert titles == ["Loss", *(title for title, _ in list(report._MEASURES.values())[1:])]
    assert plots[0]["epochs"] == [0.5, 1, 2]  # steps 1, 2 and 4 out of 4


@pytest.mark.filterwarnings("error")
def test_plots__accept_run_with_one_step():
    assert len(report._plots(np.array([[0, 3.0]]), 1, {})) == 1
