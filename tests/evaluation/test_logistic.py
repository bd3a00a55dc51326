"""``linear --fit logistic``, and what ``embed`` predicts with the classifier that it writes."""

import re
import shutil
import sys

import numpy as np
import pandas
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pirl_plugin.checkpoints.classifier import Classifier
from pirl_plugin.cli import run
from pirl_plugin.evaluation.logistic import (
    FeatureRegression,
    LayerFit,
    LogisticFits,
    choose_cost,
    hold_out,
)
from tests.helpers.host_tools import write_checkpoint, write_classes


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trunk")
    return write_checkpoint(folder / "10.torch", seed=1, DEPTH=10, WIDTH_MULTIPLIER=0.25)


def fit(checkpoint, data, out, *words):
    command = ["linear", "--checkpoint", str(checkpoint), "--data", str(data), "--out", str(out)]
    assert run([*command, "--size", "32", "--fit", "logistic", *words]) == 0
    return out / "classifier.torch"


def embed(checkpoint, data, out, *words):
    network = ["--checkpoint", str(checkpoint), "--size", "32"]
    assert run(["embed", *network, "--data", str(data), "--out", str(out), *words]) == 0
    return out


@pytest.mark.parametrize("classes", [2, 3])
def test_classifier__predicts_as_scikit_learn(classes, checkpoint, tmp_path, monkeypatch, capsys):
    """Of images with noise for classes, so that the predictions are not all right."""
    monkeypatch.setitem(sys.modules, "vissl", None)  # it works without VISSL
    counts = {"train": 30, "val": 18}
    data = write_classes(tmp_path / "data", counts, separable=False, classes=classes)
    shutil.copy(data / "train" / "class0" / "0.png", data / "train")  # it has no class
    (data / "train" / "class0" / "0.png").write_bytes(b"no image")
    file = fit(checkpoint, data, tmp_path / "out", "--layer", "res3")
    printed = capsys.readouterr().out
    assert "29 training and 18 test images" in printed
    _, top1, cost = re.findall(r"^  res3 +([0-9.]+) +([0-9.]+) +(\S+)$", printed, re.M)[0]

    # In knn's file too, which embed takes as it is.
    network = ["--checkpoint", str(file), "--size", "32", "--no-untrained", "--layer", "res3"]
    knn = ["knn", *network, "--data", str(data), "--features", str(tmp_path / "f.npz")]
    assert run(knn) == 0
    content = np.load(embed(file, data, tmp_path / "f.npz"))
    features = content["features"].astype(np.float64)
    labels = content["labels"]
    is_train = (content["splits"] == "train") & (labels >= 0)
    is_test = content["splits"] == "val"
    oracle = make_pipeline(StandardScaler(), LogisticRegression(C=float(cost)))
    oracle.fit(features[is_train], labels[is_train])
    probability = oracle.predict_proba(features)
    np.testing.assert_allclose(content["probability"], probability.max(axis=1), atol=0.01)
    names = np.array([f"class{label}" for label in range(classes)])
    is_sure = np.ptp(np.sort(probability, axis=1)[:, -2:], axis=1) > 0.02
    expected = names[probability.argmax(axis=1)]
    assert (content["predicted"] == expected)[is_sure].all()
    right = content["predicted"][is_test] == names[labels[is_test]]
    assert 100 * right.mean() == pytest.approx(float(top1), abs=0.01)


def test_classifier__of_a_layer_sorts_images_without_classes(checkpoint, tmp_path, capsys):
    data = write_classes(tmp_path / "data", {"train": 24, "val": 6}, separable=True, classes=3)
    file = fit(checkpoint, data, tmp_path / "out")
    printed = capsys.readouterr().out
    layers = re.findall(r"^  (\S+) +[0-9.]+ +([0-9.]+) +\S+$", printed, re.M)
    assert [name for name, _ in layers] == ["conv1", "res2", "res3", "res4", "res5", "last"]
    assert f"{file}: the network and the classifier of last" in printed  # all are right
    # Other commands write files of the same names.
    network = ["--checkpoint", str(checkpoint), "--size", "32"]
    for command in ("knn", "finetune"):
        with pytest.raises(ValueError, match="out holds the run of command linear"):
            run([command, *network, "--data", str(data), "--out", str(tmp_path / "out")])
    file = fit(checkpoint, data, tmp_path / "conv1", "--layer", "conv1")
    photos = tmp_path / "photos"
    photos.mkdir()
    for image in data.glob("val/*/*.png"):
        shutil.copy(image, photos / f"{image.parent.name}_{image.name}")
    for name in ("f.csv", "f.parquet"):
        out = embed(file, photos, tmp_path / name)
        read = pandas.read_csv if out.suffix == ".csv" else pandas.read_parquet
        table = read(out)
        assert table["predicted"].tolist() == [name.partition("_")[0] for name in table["file"]]
        assert table["probability"].between(0.34, 1).all()
    with pytest.raises(ValueError, match="--layer = 'res2': expected one of conv1"):
        embed(file, photos, tmp_path / "g.npz", "--layer", "res2")


def test_linear__refuses_options_of_the_other_fit(checkpoint, tmp_path, capsys):
    command = ["linear", "--checkpoint", str(checkpoint), "--data", str(tmp_path)]
    for words in (["--layer", "res2"], ["--fit", "logistic", "config.OPTIMIZER.num_epochs=3"]):
        with pytest.raises(SystemExit):
            run([*command, *words])
        assert "expected --fit" in capsys.readouterr().err


@pytest.mark.parametrize("dimensions", [12, 200])
def test_feature_regression__has_scikit_learns_weights(dimensions):
    """Also where the images span less than the space, and two images are the same."""
    features = torch.randn(40, dimensions, generator=torch.Generator().manual_seed(0))
    features[1] = features[0]
    labels = np.arange(40) % 3
    regression = FeatureRegression(features, labels)
    for cost in (1e-3, 1e-1):
        regression.fit(cost)
    scaled = StandardScaler().fit_transform(features.double())
    oracle = LogisticRegression(C=1e-1, tol=1e-8, max_iter=1000).fit(scaled, labels)
    weight, bias = regression.weights()
    np.testing.assert_allclose(weight, oracle.coef_, atol=1e-4)
    np.testing.assert_allclose(bias, oracle.intercept_, atol=2e-3)  # it ends at gradients of 1e-4
    assert regression.top1(features, labels) == 100 * oracle.score(scaled, labels)


def test_choose_cost__has_sure_probabilities_for_separable_classes():
    """Each C classifies them correctly; the first had probabilities near chance."""
    labels = np.arange(60) % 3
    noise = torch.randn(60, 6, generator=torch.Generator().manual_seed(0))
    features = torch.eye(3)[labels].repeat(1, 2) + 0.1 * noise
    cost, top1 = choose_cost(features, labels, hold_out(labels))
    assert (cost, top1) == (0.1, 100)


def test_best_layer__is_the_last_of_equal_ones():
    classifiers = [
        Classifier(torch.zeros(2, 3), torch.zeros(2), ["a", "b"], layer)
        for layer in ("layer1", "layer2", "last")
    ]
    accuracies = [80.0, 90.0, 90.0]
    fits = [
        LayerFit(classifier, 0.1, top1, test_top1=0.0)
        for classifier, top1 in zip(classifiers, accuracies, strict=True)
    ]
    assert LogisticFits(fits, 10, 2, 10).best.classifier.layer == "last"


def test_hold_out__is_a_fifth_of_each_class():
    labels = np.repeat([3, 1, 7, 0], [1, 2, 10, 37])
    is_held_out = hold_out(labels)
    assert [is_held_out[labels == label].sum() for label in (3, 1, 7, 0)] == [0, 1, 2, 8]
