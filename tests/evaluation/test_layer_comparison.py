"""Comparison of a network's layers by kNN."""

import re

import pytest
import torch

from pirl_plugin.evaluation import layer_comparison
from pirl_plugin.evaluation.knn import find_neighbors, vote
from pirl_plugin.evaluation.layer_comparison import clearly_best, compare_layers
from pirl_plugin.images.labeled import open_labeled
from pirl_plugin.models.resnet import WideResNet
from tests.helpers.host_tools import write_classes


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    root = write_classes(folder, {"train": 12, "val": 6}, separable=True, classes=3)
    (root / "train" / "class0" / "0.png").write_bytes(b"no image")
    return open_labeled(root)


def network(seed):
    torch.manual_seed(seed)
    trunk = WideResNet(10, 0.25).eval()
    trunk.network_config = trunk.network_config.with_values("test", size=32)
    return trunk


def test_compare_layers__covers_every_layer_and_network(images):
    compared, pooled = compare_layers({"a": network(0), "b": network(1)}, images, k=3)
    assert list(compared.top1) == ["conv1", "res2", "res3", "res4", "res5", "last"]
    assert all(len(accuracies) == 2 for accuracies in compared.top1.values())
    assert compared.top1["conv1"] == [100, 100]  # color suffices
    assert compared.num_test == 6
    assert [len(features) for features in pooled.features] == [17] * 2
    (bars,) = compared.chart().values()
    assert [(bar.name, bar.is_reference) for bar in bars[:2]] == [
        ("conv1 a", False),
        ("conv1 b", True),
    ]


def test_compare_layers__draws_same_images_from_large_splits(images, monkeypatch, capsys):
    monkeypatch.setattr(layer_comparison, "_MOST_IMAGES", 5)
    rows = layer_comparison.sample_rows(images.train_labels, 5)
    assert rows == layer_comparison.sample_rows(images.train_labels, 5) == sorted(set(rows))
    assert len(rows) == 5
    compared, pooled = compare_layers({"a": network(0)}, images, k=3)
    assert re.search("[45] training and 5 test images, drawn with seed 0", capsys.readouterr().out)
    assert compared.num_test == 5
    assert (pooled.num_train, len(pooled.test_labels)) == (11, 6)


def test_table__has_one_line_per_layer(images, monkeypatch, capsys):
    predicted = torch.tensor([0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0])  # 4 of 6 test images are correct
    monkeypatch.setattr(layer_comparison, "vote", lambda rows, *votes: predicted[: len(rows)])
    compared, _ = compare_layers({"random": network(0), "pirl": network(1)}, images, k=3)
    first, names, *lines = capsys.readouterr().out.splitlines()
    assert "(k = 3, 11 training and 6 test images)" in first
    assert names.split() == ["random", "pirl"]
    expected = [[name, "66.67", "66.67"] for name in compared.top1]
    assert [line.split() for line in lines[: len(expected)]] == expected
    assert compared.top1["last"] == [66.67, 66.67]


def test_advice__is_based_on_first_network(images, monkeypatch):
    answers = []
    monkeypatch.setattr(layer_comparison, "_advice", answers.append)
    blind = network(1)
    torch.nn.init.zeros_(next(blind.parameters()))  # zeroes conv1
    for networks in ({"a": network(0)}, {"a": network(0), "b": blind}):
        compare_layers(networks, images, k=3)
    alone, first = answers
    assert list(alone) == list(first) == ["conv1", "res2", "res3", "res4", "res5", "last"]
    for layer, is_right in alone.items():
        assert torch.equal(first[layer], is_right), layer


def test_advice__names_clearly_better_layer():
    last = torch.arange(100) < 50
    better = torch.arange(100) < 60
    advice = layer_comparison._advice({"res2": last, "res3": better, "last": last})
    assert advice.endswith(
        "res3 scores 10.0 points above the pooled features. To use it, pass --layer res3.\n"
    )
    as_good = torch.arange(100) < 56  # (6 − 1) / √6 = 2.04 standard errors
    assert layer_comparison._advice({"res2": as_good, "last": last}) == ""
    assert layer_comparison._advice({"res2": last, "last": better}) == ""
    assert layer_comparison._advice({"last": last}) == ""


def test_advice__is_rare_among_equally_good_layers():
    """Features are noise; leave-one-out makes the answers for different images dependent."""
    names = ["conv1", "res2", "res3", "res4", "res5", "last"]
    labels = torch.arange(60) % 4
    generator = torch.Generator().manual_seed(0)
    num_advised = 0
    for _ in range(200):
        is_right = {}
        for name in names:
            noise = torch.randn(60, 8, generator=generator)
            neighbors = find_neighbors(noise, noise, 20, leave_one_out=True)
            is_right[name] = vote(*neighbors, labels) == labels
        num_advised += clearly_best(is_right) is not None
    assert num_advised <= 10
