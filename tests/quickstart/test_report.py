"""What the report says follows from what was measured."""

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from pirl_plugin.images.sources import FolderSource
from pirl_plugin.quickstart import quickstart_report as report
from pirl_plugin.quickstart.images import Data, Split
from pirl_plugin.quickstart.quickstart_report import (
    accuracy_facts,
    nearest_rows,
    neighbor_queries,
    same_class_shares,
)


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


def test_neighbor_queries__counts_each_and_sorts_by_success(image_folder, monkeypatch):
    monkeypatch.setattr(report, "_NUM_QUERIES", 2)
    monkeypatch.setattr(report, "_NUM_NEIGHBORS", 3)
    source = FolderSource(image_folder / "train")  # 10 ants, then 10 bees
    rows = [0, 1, 2, 10, 11]
    classes = ["ants"] * 3 + ["bees"] * 2
    # The ants are alike. The first bee is nearer to them than to the second one.
    pirl = torch.tensor([[1, 0.5, 0]] * 3 + [[0, 1, 0], [0, 0, 1]])
    train = Split(source, rows, {"pirl": pirl, "random": pirl.flip(0)})
    assert train.classes == classes
    test = Split(source, [10, 0], {"pirl": pirl[[3, 0]], "random": pirl[[3, 0]]})
    nearest = nearest_rows(train, test)
    queries = neighbor_queries(train, test, nearest)
    assert [query["query"]["label"] for query in queries] == ["ants", "bees"]
    assert [query["num_same"]["pirl"] for query in queries] == [3, 1]
    # In reverse order, the three images with equal features are an ant and two bees.
    assert queries[0]["num_same"]["random"] == 1
    labels = [neighbor["label"] for neighbor in queries[1]["pirl"]]
    assert labels.count("bees") == 1
    shares = same_class_shares(train, test, nearest)
    assert shares["pirl"] == pytest.approx(100 * 4 / 6)  # of three neighbours of two queries


def test_neighbor_queries__without_classes_leaves_out_the_query(image_folder):
    source = FolderSource(image_folder / "train")
    rows = list(range(len(source)))
    features = torch.randn(len(rows), 4)
    train = Split(source, rows, {"pirl": features, "random": features})
    for query in neighbor_queries(train, None, nearest_rows(train, None)):
        assert query["query"]["image"] not in [near["image"] for near in query["pirl"]]
        assert len(query["pirl"]) == 6


def test_smoothed__is_a_mean_with_shorter_windows_at_the_ends():
    values = np.zeros(80)
    values[40] = 5
    smoothed = report._smoothed(values)  # windows of 2 values to each side
    assert smoothed[38:43] == pytest.approx([1] * 5)
    assert smoothed.sum() == pytest.approx(5)
    assert report._smoothed([3, 1]) == pytest.approx([3, 1])


def test_plots__are_of_measures_that_every_epoch_has():
    names = list(report._MEASURES)
    measures = {epoch: {n: {"value": 1, "chance": 0} for n in names} for epoch in (1, 2)}
    del measures[2][names[0]]
    plots = report._plots(np.array([[1, 3.0], [2, 2.0], [4, 1.0]]), 2, measures)
    titles = [re.search('aria-label="([^"]+)"', plot)[1] for plot in plots]
    assert titles == ["Loss", *(title for title, _ in list(report._MEASURES.values())[1:])]


def test_commands__name_the_data_of_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    out = tmp_path / "runs" / "a b"
    checkpoint = out / "checkpoint.torch"
    drawn = report._commands(out, Data(out / "sample_data" / "train", None, 10), checkpoint)
    assert "--data DIR" in drawn["The same on your own images"]
    assert f"'{out}_own'" in drawn["The same on your own images"]
    own = report._commands(out, Data(Path("my photos"), None, 10), checkpoint)
    longer = own["A longer training of a larger network on these images"]
    assert "machines=cpu" in longer
    assert "'my photos'" in longer.replace("'\"'\"'", "'")
