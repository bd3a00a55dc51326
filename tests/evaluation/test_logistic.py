"""``linear``, and ``embed`` predictions from the saved classifier."""

import json
import re
import shutil
import sys

import numpy as np
import pandas
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from pirl_plugin.checkpoints.classifier import read_classifier
from pirl_plugin.cli import run
from pirl_plugin.evaluation.logistic import choose_layer, fit_logistic, held_out_splits
from tests.helpers.host_tools import write_checkpoint, write_classes

KEYS = ("features", "labels", "predicted", "probability")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trunk")
    return write_checkpoint(folder / "10.torch", seed=1, DEPTH=10, WIDTH_MULTIPLIER=0.25)


def fit(checkpoint, data, out, *words):
    command = ["linear", "--checkpoint", str(checkpoint), "--data", str(data), "--out", str(out)]
    assert run([*command, "--size", "32", *words]) == 0
    return out / "classifier.torch"


def embed(checkpoint, data, out, *words):
    network = ["--checkpoint", str(checkpoint), "--size", "32"]
    assert run(["embed", *network, "--data", str(data), "--out", str(out), *words]) == 0
    return out


@pytest.mark.parametrize("classes", [2, 3])
def test_classifier__matches_scikit_learn_predictions(
    classes, checkpoint, tmp_path, monkeypatch, capsys
):
    """Classes are noise, so that not all predictions are correct."""
    monkeypatch.setitem(sys.modules, "vissl", None)  # must work without VISSL
    counts = {"train": 30, "val": 18}
    data = write_classes(tmp_path / "data", counts, separable=False, classes=classes)
    shutil.copy(data / "train" / "class0" / "0.png", data / "train")  # unlabeled
    (data / "train" / "class0" / "0.png").write_bytes(b"no image")
    file = fit(checkpoint, data, tmp_path / "out", "--layer", "res3")
    printed = capsys.readouterr().out
    assert "29 training and 18 test images" in printed
    _, top1, cost = re.findall(r"^  res3 +([0-9.]+) +([0-9.]+) +(\S+)  chosen$", printed, re.M)[0]

    parts = [np.load(embed(file, data / part, tmp_path / f"{part}.npz")) for part in counts]
    content = {name: np.concatenate([part[name] for part in parts]) for name in KEYS}
    features = content["features"].astype(np.float64)
    labels = content["labels"]
    is_test = np.arange(len(labels)) >= len(parts[0]["labels"])
    is_train = ~is_test & (labels >= 0)
    scaled = scale(features, features[is_train])
    oracle = LogisticRegression(C=float(cost)).fit(scaled[is_train], labels[is_train])
    probability = oracle.predict_proba(scaled)
    np.testing.assert_allclose(content["probability"], probability.max(axis=1), atol=0.01)
    names = np.array([f"class{label}" for label in range(classes)])
    is_sure = np.ptp(np.sort(probability, axis=1)[:, -2:], axis=1) > 0.02
    expected = names[probability.argmax(axis=1)]
    assert (content["predicted"] == expected)[is_sure].all()
    right = content["predicted"][is_test] == names[labels[is_test]]
    assert 100 * right.mean() == pytest.approx(float(top1), abs=0.01)
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["chosen"] == "res3"
    most_frequent = np.bincount(labels[is_train]).argmax()
    chance = 100 * (labels[is_test] == most_frequent).mean()
    assert results["chance_top1"] == pytest.approx(chance, abs=0.01)
    assert re.search(
        rf"res3: {top1} ± [\d.]+ % .* mean over classes .* chance {chance:.2f} %", printed
    )
    fit(checkpoint, data, tmp_path / "all", "--layer", "res3", "--fit-all")
    assert json.loads((tmp_path / "all" / "results.json").read_text()) == results
    saved = [read_classifier(tmp_path / name / "classifier.torch") for name in ("out", "all")]
    assert not torch.equal(saved[0].weight, saved[1].weight)
    assert results["layers"]["res3"]["right"] == "".join(map(str, right.astype(int)))


def test_report__shows_classes_mistakes_and_next_command(checkpoint, tmp_path, capsys):
    counts = {"train": 30, "val": 18}
    data = write_classes(tmp_path / "data", counts, separable=False, classes=3)
    page = tmp_path / "report.html"
    with pytest.raises(ValueError, match="--layer = 'res9': expected one of conv1, res2"):
        fit(checkpoint, data, tmp_path / "out", "--layer", "res9")
    fit(checkpoint, data, tmp_path / "out", "--layer", "last", "--report", str(page))
    printed = capsys.readouterr().out
    by_class = re.findall(r"^ +([0-9.]+) +6  class(\d)$", printed, re.M)
    assert sorted(label for _, label in by_class) == ["0", "1", "2"]
    (top1,) = re.findall(r"^  last +[0-9.]+ +([0-9.]+) +\S+  chosen$", printed, re.M)
    assert sum(float(accuracy) for accuracy, _ in by_class) / 3 == pytest.approx(
        float(top1), abs=0.1
    )
    html = page.read_text()
    num_wrong = round(18 * (1 - float(top1) / 100))
    assert html.count("predicted: class") == num_wrong
    for file in re.findall(r"<span title=.val/(class\d/\d+.png)", html):
        assert (data / "val" / file).is_file()
    assert "last (chosen)" in html
    # The result and its bar; classes have too few images for an interval.
    assert len(re.findall(r"\d ± ", html)) == 2
    assert html.count(" % of 6<") == 3
    cells = re.findall(r'class="(?:right|wrong)">(\d+)<', html)
    assert sum(map(int, cells)) == 18
    next_command = re.findall("^  (pirl-plugin embed .*)$", printed, re.M)[0]
    assert next_command in html
    command = next_command.replace("PHOTOS", str(data / "val"))
    command = command.replace("photos.csv", str(tmp_path / "photos.csv"))
    command = command.replace(" sorted", f" {tmp_path / 'sorted'}")
    assert run([*command.split()[1:], "--size", "32"]) == 0
    table = pandas.read_csv(tmp_path / "photos.csv")
    assert list(table) == ["file", "label", "class", "predicted", "probability"]
    ordered = table.sort_values(["predicted", "probability"], ascending=[True, False])
    assert ordered.index.tolist() == list(range(18))
    for row in table.itertuples():
        links = [*(tmp_path / "sorted" / row.predicted).iterdir()]
        assert (data / "val" / row.file) in [link.resolve() for link in links]


def test_layer_classifier__sorts_unlabeled_images(checkpoint, tmp_path, capsys):
    data = write_classes(tmp_path / "data", {"train": 24, "val": 6}, separable=True, classes=3)
    file = fit(checkpoint, data, tmp_path / "out")
    printed = capsys.readouterr().out
    layers = re.findall(r"^  (\S+) +[0-9.]+ +([0-9.]+) +\S+(?:  chosen)?$", printed, re.M)
    assert [name for name, _ in layers] == ["conv1", "res2", "res3", "res4", "res5", "last"]
    assert f"{file}: the network with a classifier on last" in printed  # all are correct
    # Other commands write files with the same names.
    network = ["--checkpoint", str(checkpoint), "--size", "32"]
    for command in ("knn", "finetune"):
        with pytest.raises(ValueError, match="out belongs to the run with command linear"):
            run([command, *network, "--data", str(data), "--out", str(tmp_path / "out")])
    file = fit(checkpoint, data, tmp_path / "conv1", "--layer", "conv1")
    photos = tmp_path / "photos"
    photos.mkdir()
    for image in data.glob("val/*/*.png"):
        shutil.copy(image, photos / f"{image.parent.name}_{image.name}")
    table = pandas.read_csv(embed(file, photos, tmp_path / "f.csv"))
    assert table["predicted"].tolist() == [name.partition("_")[0] for name in table["file"]]
    assert table["probability"].between(0.34, 1).all()
    with pytest.raises(ValueError, match="--layer = 'res2': expected one of conv1"):
        embed(file, photos, tmp_path / "g.npz", "--layer", "res2")


@pytest.mark.parametrize("num_classes", [2, 3])
@pytest.mark.parametrize("dimensions", [12, 200])
def test_fit_logistic__matches_scikit_learn(dimensions, num_classes):
    """Also for rank-deficient features and duplicate images."""
    features = torch.randn(40, dimensions, generator=torch.Generator().manual_seed(0))
    features[1] = features[0]
    labels = 7 * (np.arange(40) % num_classes)
    fit = fit_logistic(features, labels)
    scaled = scale(features.double().numpy(), features.double().numpy())
    oracle = LogisticRegression(C=fit.cost, tol=1e-8, max_iter=1000).fit(scaled, labels)
    predicted, probability = fit.predict(features)
    expected = oracle.predict_proba(scaled)
    np.testing.assert_allclose(probability, expected.max(axis=1), atol=2e-3)
    is_sure = np.ptp(np.sort(expected, axis=1)[:, -2:], axis=1) > 4e-3
    assert (predicted.numpy() == oracle.predict(scaled))[is_sure].all()


def scale(features, train):
    deviations = np.maximum(train.std(axis=0), train.std(axis=0).mean())
    return (features - train.mean(axis=0)) / deviations / np.sqrt(features.shape[1])


@pytest.mark.parametrize("dimensions", [2, 300])
def test_fit_logistic__does_not_magnify_nearly_constant_column(dimensions):
    labels = np.arange(100) % 2
    features = torch.zeros(100, dimensions)
    features[:, 0] = torch.from_numpy(2.0 * labels - 1)
    test = features.clone()
    features[0, 1] = 1e-4
    test[:, 1] = 0.5
    assert (fit_logistic(features, labels).predict(test)[0].numpy() == labels).all()


def test_fit_logistic__is_certain_about_separable_classes():
    """Every C classifies them correctly, but the smallest gives probabilities near chance."""
    labels = np.arange(60) % 3
    noise = torch.randn(60, 6, generator=torch.Generator().manual_seed(0))
    features = torch.eye(3)[labels].repeat(1, 2) + 0.1 * noise
    fit = fit_logistic(features, labels)
    assert fit.held_out_right.all()
    assert fit.predict(features)[1].min() > 0.9


def test_fit_logistic__accepts_equal_features_and_refuses_single_images():
    labels = np.array([0, 0, 1, 1, 1, 2])  # the last class has no image to hold out
    fit = fit_logistic(torch.ones(6, 4), labels)
    assert fit.predict(torch.ones(1, 4))[0] == 1
    assert len(fit.held_out_right) == 5
    with pytest.raises(ValueError, match="No class has two images"):
        fit_logistic(torch.ones(3, 4), np.arange(3))


@pytest.mark.parametrize("num_groups", [12, 1200])
def test_held_out_splits__keep_groups_together(num_groups):
    groups = np.repeat(np.arange(num_groups), 2)
    labels = groups % 3
    splits = held_out_splits(labels, groups)
    assert len(splits) == (4 if num_groups == 12 else 1)  # a class has four groups, or many
    for fitted, held_out in splits:
        assert not set(groups[fitted]) & set(groups[held_out])
        assert set(labels[held_out]) == {0, 1, 2}


def test_fit_logistic__does_not_learn_groups_by_heart():
    """Features tell each group, but not its class."""
    groups = np.repeat(np.arange(40), 5)
    labels = groups % 2
    features = torch.eye(40)[groups]
    assert fit_logistic(features, labels).held_out_top1 == 100
    assert fit_logistic(features, labels, groups).held_out_top1 <= 50
    with pytest.raises(ValueError, match="No class has two groups"):
        fit_logistic(features, labels, labels)


@pytest.mark.parametrize(("num_train", "expected"), [(999, "last"), (1000, "res3")])
def test_choose_layer__keeps_last_layer_unless_clearly_beaten(num_train, expected):
    last = torch.arange(200) < 100
    held_out_right = {"res2": last, "res3": torch.arange(200) < 103, "last": last}
    assert choose_layer(held_out_right, num_train) == expected
    held_out_right["res2"] = torch.arange(200) < 120
    assert choose_layer(held_out_right, num_train) == "res2"


def test_choose_layer__prefers_last_of_equal_layers():
    is_right = torch.arange(200) < 100
    assert choose_layer(dict.fromkeys(["res2", "res3", "last"], is_right), 5000) == "last"


@pytest.mark.parametrize(("count", "num_splits"), [(36, 5), (1200, 1)])
def test_splits__use_five_folds_or_a_fifth_of_many_images(count, num_splits):
    labels = np.repeat([3, 1, 0], [1, 2, count])
    splits = held_out_splits(labels)
    assert len(splits) == num_splits
    for others, held_out in splits:
        assert not set(others) & set(held_out)
        assert set(labels[others]) == {3, 1, 0}
        assert (labels[held_out] == 0).sum() == pytest.approx(count / 5, abs=1)
    held_out = np.concatenate([held_out for _, held_out in splits])
    assert len(set(held_out)) == len(held_out)
    assert 0 not in held_out  # the only image in its class
    if num_splits == 5:
        assert len(held_out) == len(labels) - 1
