"""extra_scripts/claims: starts.py and its report."""

import argparse
import json
import re
import shutil
import sys
from pathlib import Path

import image_sets
import numpy as np
import pandas as pd
import pytest
import starting_points
import starts
import starts_report
import torch
import training
from intervals import Accuracy, difference, unpacked
from layer_accuracy import accuracies, labeled_rows, layer_features
from report_files import TABLES
from starts_rows import Row, RowName
from training import Saving, decoded, save_tensors

import pirl_plugin as pirl
from tests.helpers.images import save_gray

ROOT = Path(__file__).parents[3]


def run(monkeypatch, module, *words):
    monkeypatch.setattr(sys, "argv", ["script", *map(str, words)])
    module.main()


def test_decoded__reduces_only_large_photos(tmp_path):
    save_gray(tmp_path / "a" / "0.png", 10, (400, 300))
    save_gray(tmp_path / "a" / "1.png", 10, (60, 50))
    _, images = decoded(tmp_path, side=75)
    assert [image.size for image, _ in images] == [(100, 75), (60, 50)]


def test_labeled_rows__draw_fraction_from_every_class():
    labels = np.array([0] * 95 + [1] * 3 + [2] * 2)
    rows = labeled_rows(labels, 0.1, seed=1)
    assert len(rows) == len(set(rows)) == 10
    assert (np.bincount(labels[rows]) >= 2).all()
    assert list(labeled_rows(labels, 0.1, seed=2)) != list(rows)


def test_accuracies__choose_layer_on_training_photos():
    """Layer ``good`` separates the training photos, ``last`` only the test photos."""
    labels = np.arange(60) % 2
    noise = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    signal = torch.from_numpy(labels)[:, None] * 2.0 - 1 + 0.01 * noise
    train = {"good": signal, "last": noise}
    measured = accuracies(train, labels, {"good": noise, "last": signal}, labels, seed=1)
    assert [*measured] == ["knn", "linear", "linear_0.05", "linear_0.1"]
    assert measured["knn"]["layer"] == measured["linear"]["layer"] == "good"
    assert measured["linear"]["best"] < 80
    right = unpacked(measured["linear"]["last_right"], 60)
    assert 100 * right.mean() == pytest.approx(measured["linear"]["last"], abs=0.01)


def accuracy(right, *, known=True, **settings):
    """Accuracy from seeds × photos."""
    right = np.asarray(right)
    top1 = pd.Series(100 * right.mean(axis=1), range(len(right)))
    return Accuracy(top1, right.shape[1], dict(enumerate(right)) if known else {}, **settings)


def test_difference__covers_seeds_and_test_photos():
    """Paired by photo, the interval matches a bootstrap; unpaired, it is wider."""
    rng = np.random.default_rng(0)
    hard = rng.random(500) < 0.4  # hard for both
    first, second = (~hard & (rng.random((3, 500)) < p) for p in (0.95, 0.9))
    paired = difference(accuracy(first), accuracy(second))
    draws = rng.integers(500, size=(4000, 500))
    leads = 100 * (first.astype(float) - second).mean(axis=0)[draws].mean(axis=1)
    by_seed = 100 * (first.astype(float) - second).mean(axis=1)
    of_seeds = 4.303 * by_seed.std(ddof=1) / 3**0.5  # Student's t, two degrees of freedom
    assert paired.mean == pytest.approx(by_seed.mean())
    assert paired.half_width == pytest.approx(np.hypot(of_seeds, 1.96 * leads.std()), rel=0.05)
    unpaired = difference(accuracy(first, known=False), accuracy(second, known=False))
    assert unpaired.half_width > paired.half_width


def test_scene__splits_tiles_without_shared_pixels(monkeypatch, tmp_path):
    data = tmp_path / "tensorly" / "datasets" / "data"
    data.mkdir(parents=True)
    numbers = np.arange(87 * 58, dtype=np.uint16).reshape(87, 58, 1)
    np.save(data / "Indian_pines_corrected.npy", np.repeat(numbers, 20, axis=2))
    np.save(data / "Indian_pines_gt.npy", np.ones((87, 58), np.uint8))
    image_sets.make_scene(tmp_path, tmp_path / "scene")
    train, test = (
        np.stack([np.load(file) for file in (tmp_path / "scene" / part).rglob("*.npy")])
        for part in ("train", "val")
    )
    assert train.shape == test.shape == (3 * 13 * 13, 17, 17, 2)  # from 3 blocks
    assert not np.intersect1d(train, test).size


def test_comparison__uses_all_channels_of_arrays(tmp_path):
    """Three of five channels are correlated; components are uncorrelated, with unit variance."""
    rng = np.random.default_rng(0)
    for number in range(12):
        image = rng.integers(2000, 9000, (20, 20, 5), np.uint16)
        image[..., 1] = image[..., 2] = image[..., 0] // 2
        split = "val" if number % 3 == 0 else "train"
        image_sets.save_array(image, tmp_path / split / f"{number % 2}" / f"{number}.npy")
    options = argparse.Namespace(data=tmp_path, images=6, image_size=20, width=0.25, choose=True)
    comparison = starting_points.Comparison(options)
    assert len(comparison.train) == 6
    assert len(comparison.test) == 2  # the training images not drawn
    features = comparison.features(comparison.test, comparison.network("random", 0), 20)
    assert len(features["last"]) == 2
    crops = torch.stack([image.float() for image, _ in comparison.train])
    components = comparison.components(comparison.normalize(crops)).transpose(0, 1).flatten(1)
    torch.testing.assert_close(components.cov(), torch.eye(3), atol=1e-2, rtol=0)
    levels = comparison.handmade(comparison.train, "mean_deviation", 20)["last"]
    expected = (comparison.normalize(crops)[:, 0].mean((1, 2)) + 3) / 6
    torch.testing.assert_close(levels[:, 0], expected)
    assert comparison.handmade(comparison.train, "histograms", 20)["last"].shape[1] == 1764 + 80


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("histograms", Row("histograms", 0, 64)),
        ("npid:time40", Row("npid", 80, 64)),
        ("npid:20/160", Row("npid", 20, 64, of=160)),
        ("npid_continued:5@128", Row("npid continued", 5, 128)),
        ("tuned/pirl_jigsaw:20", Row("pirl_jigsaw", 20, 64, is_tuned=True)),
    ],
)
def test_row_name__parses_to_row(name, row):
    costs = {"pirl_jigsaw": 4.0, "npid": 2.0}
    assert RowName.parse(name).row(costs, 64) == row


@pytest.mark.parametrize("name", ["mocov2:5", "npid:", "tuned/", "npid:30/160"])
def test_row_name__refuses_invalid_names(name):
    with pytest.raises(argparse.ArgumentTypeError, match="is not a row"):
        RowName.parse(name)


def test_layer_features__match_the_trunk(photos):
    trunk = pirl.WideResNet(10, width=0.125)
    _, images = decoded(photos / "val")
    layers = layer_features(trunk, images, 32)
    assert trunk.training  # mode is restored
    pixels = torch.stack([torch.from_numpy(np.array(image)) for image, _ in images])
    crops = torch.nn.functional.interpolate(
        pixels.permute(0, 3, 1, 2).float(), 32, mode="bilinear", antialias=True
    )
    with torch.no_grad():
        expected = trunk.eval()(pirl.normalize_images(crops.round().byte()))
    torch.testing.assert_close(layers["last"].float(), expected, atol=2e-2, rtol=2e-2)
    assert list(layers) == ["layer1", "layer2", "layer3", "layer4", "last"]


def test_training__resumes_with_the_same_result(monkeypatch, photos, tmp_path):
    options = argparse.Namespace(data=photos, images=40, image_size=32, width=0.125, choose=False)
    options.image_scale, options.precision = (0.2, 1.0), "float32"
    comparison = starting_points.Comparison(options)

    def pretrain(name):
        saving = Saving(tmp_path / f"{name}.training", {1: tmp_path / f"{name}_1.pth"}, every=1)
        return comparison.pretrain("pirl_jigsaw", 3, seed=1, saving=saving).state_dict()

    def stop(content, file):
        save_tensors(content, file)
        if file.suffix == ".training":
            raise KeyboardInterrupt

    complete = pretrain("complete")
    with monkeypatch.context() as patch:
        patch.setattr(training, "save_tensors", stop)
        with pytest.raises(KeyboardInterrupt):
            pretrain("stopped")
    torch.testing.assert_close(pretrain("stopped"), complete, rtol=0, atol=0)
    states = [torch.load(tmp_path / f"{name}_1.pth") for name in ("complete", "stopped")]
    torch.testing.assert_close(*states, rtol=0, atol=0)


@pytest.mark.slow
def test_starts__measure_fine_tune_and_resume(monkeypatch, photos, tmp_path, capsys):
    monkeypatch.setattr(starting_points, "FINE_TUNING_STEPS", 2)
    monkeypatch.setattr(starting_points, "BATCH", 2)
    monkeypatch.setattr(starts, "fast_precision", lambda: "float32")
    words = ["--data", photos, "--out", tmp_path, "--images", 40, "--seeds", 1, "--image-size", 32]
    words += ["--rows", "histograms", "random", "npid:1", "tuned/random", "tuned/npid:1"]
    run(monkeypatch, starts, *words, "--costs")
    file = tmp_path / "starts.json"
    content = json.loads(file.read_text())
    assert content["setting"]["train_images"] == 40
    assert content["costs"]["npid"] > 0
    assert [row["start"] for row in content["frozen"]] == ["histograms", "random", "npid"]
    assert content["frozen"][0]["linear"]["last"] > 90  # from colors
    assert [row["start"] for row in content["fine_tuned"]] == ["random"] * 2 + ["npid"] * 2
    capsys.readouterr()
    run(monkeypatch, starts, *words)
    assert capsys.readouterr().out == "ResNets train in float32\n"  # nothing is trained again
    npid = content["frozen"].pop()
    file.write_text(json.dumps(content))
    monkeypatch.setattr(starting_points.Comparison, "pretrain", None)
    run(monkeypatch, starts, *words)  # evaluates the saved network
    assert json.loads(file.read_text())["frozen"][-1] == npid
    run(monkeypatch, starts_report, file, "--out", tmp_path)
    assert "| NPID, 1 epoch, 32 px |" in (tmp_path / "starts.md").read_text()
    assert (tmp_path / "starts.svg").stat().st_size > 1000


@pytest.mark.parametrize(
    ("name", "sets", "section"),
    [
        ("starts", ("imagenette", "clothing", "tiny_imagenet"), "Photos"),
        ("channels", ("cells", "indian_pines"), "Images with other channels"),
        ("views", ("cells_views", "spoken_digits_views", "steel_views"), None),
        ("unlike_photos", ("spoken_digits", "steel"), "Images unlike photos"),
        ("long", ("imagenette_long",), None),
        ("long_cells", ("cells_long",), None),
    ],
)
def test_committed_rows__reproduce_committed_tables(name, sets, section, monkeypatch, tmp_path):
    results = ROOT / "docs" / "results"
    files = [results / "starts" / f"{one}.json" for one in sets]
    page = results / "starts" / f"{name}.md"
    shutil.copy(page, tmp_path)
    run(monkeypatch, starts_report, *files, "--out", tmp_path, "--name", name)
    assert (tmp_path / page.name).read_text("utf-8") == page.read_text("utf-8")
    text, _, tables = page.read_text("utf-8").partition(TABLES)
    if section is not None:
        summary = (results / "README.md").read_text("utf-8").partition(f"\n## {section}\n")[2]
        text += summary.partition("\n## ")[0]
        assert tables.split("\n\n")[1] in text
    # Every figure in the text is in the tables.
    written = re.findall(r"\d+\.\d", re.sub("```.*?```", "", text, flags=re.DOTALL))
    assert written
    assert not [figure for figure in written if figure not in tables]


def test_report__compares_states_during_training(monkeypatch, tmp_path):
    content = json.loads((ROOT / "docs/results/starts/imagenette_long.json").read_text("utf-8"))
    of_npid = [row for row in content["states"] if row["start"] == "npid"]
    content["states"] = of_npid + [{**row, "start": "pirl_jigsaw"} for row in of_npid]
    file = tmp_path / "starts.json"
    file.write_text(json.dumps(content))
    run(monkeypatch, starts_report, file, "--out", tmp_path)
    lead = "| PIRL (jigsaw), 10 of 160 epochs − NPID, 10 of 160 epochs, 64 px | +0.0"
    assert lead in (tmp_path / "starts.md").read_text("utf-8")
    assert (tmp_path / "starts_gap.svg").stat().st_size > 1000


def test_first_page__shows_short_table():
    short = (ROOT / "docs/results/starts/starts.md").read_text("utf-8").partition(TABLES)[2]
    assert short.split("\n\n")[1] in (ROOT / "README.md").read_text("utf-8")
