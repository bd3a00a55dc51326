"""Features for any images, from ``pirl-plugin embed`` and in Python."""

import csv
import json
import os
import shutil
import signal

import numpy as np
import pandas
import pytest
import torch

import pirl_plugin
from pirl_plugin.checkpoints.load import load_trunk
from pirl_plugin.cli import run
from pirl_plugin.evaluation.features import extract_features
from pirl_plugin.models.network_config import NetworkConfig
from pirl_plugin.models.resnet import WideResNet
from pirl_plugin.system.watcher import Interrupted
from tests.helpers.host_tools import write_checkpoint, write_classes, write_colored


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trunk")
    return write_checkpoint(folder / "10.torch", seed=1, DEPTH=10, WIDTH_MULTIPLIER=0.25)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Create seven unlabeled images, the third of them unreadable."""
    folder = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    for i in range(7):
        write_colored(folder / f"{i}.png", i % 3, rng)
    (folder / "2.png").write_bytes(b"no image")
    return folder


def embed(checkpoint, data, out, *options):
    words = ["--checkpoint", str(checkpoint), "--data", str(data), "--out", str(out)]
    assert run(["embed", *words, "--size", "32", "--batch", "4", *options]) == 0
    return out


def test_embed__writes_features_of_unlabeled_images(checkpoint, photos, tmp_path, capsys):
    npz = np.load(embed(checkpoint, photos, tmp_path / "f.npz"), allow_pickle=False)
    assert set(npz.files) == {
        *("features", "files", "paths", "stamps", "digests", "unreadable", "progress")
    }
    assert npz["files"].tolist() == ["0.png", "1.png", "3.png", "4.png", "5.png", "6.png"]
    expected, readable = extract_features(load_trunk(checkpoint), photos, size=32)
    assert readable.tolist() == [True, True, False, True, True, True, True]
    assert expected[2].isnan().all()
    assert npz["features"].dtype == np.float32
    np.testing.assert_allclose(npz["features"], expected[readable], rtol=1e-4, atol=1e-5)
    printed = capsys.readouterr().out
    assert f"images: 7 in {photos} (folder), unlabeled" in printed
    assert "input: 32 px (option), mean 0.485 0.456 0.406 (default)" in printed
    assert "To change a default: --mean, --std" in printed
    assert "unreadable, skipped: 2.png" in printed
    unfinished = tmp_path / "f.npz.unfinished"
    assert not unfinished.exists()
    # A run without readable images leaves nothing; a stopped run names its folder.
    with pytest.raises(ValueError, match="None of 1 images could be read"):
        embed(checkpoint, photos / "2.png", tmp_path / "g.npz")
    embed(checkpoint, photos / "1.png", tmp_path / "g.npz")
    progress = json.loads(str(npz["progress"]))
    progress["identity"]["image size"] = 64
    unfinished.mkdir()
    np.savez(unfinished / "0.npz", **{**npz, "progress": json.dumps(progress)})
    (tmp_path / "f.npz").unlink()
    with pytest.raises(ValueError, match=f"{unfinished}/0.npz was computed for a different image"):
        embed(checkpoint, photos, tmp_path / "f.npz")


def test_embed__resumes_after_the_last_batch(checkpoint, photos, tmp_path, monkeypatch):
    folder = tmp_path / "photos"
    shutil.copytree(photos, folder)
    file = tmp_path / "f.npz"
    parts = tmp_path / "f.npz.unfinished"
    options = ["--workers", "0"]
    expected = np.load(embed(checkpoint, folder, tmp_path / "expected.npz", *options))
    forward = WideResNet.named_features
    seen = []

    def stop(trunk, images, *keys):
        seen.append(len(images))
        if sum(seen) > 4:
            raise Interrupted(signal.SIGINT)
        return forward(trunk, images, *keys)

    monkeypatch.setattr(WideResNet, "named_features", stop)
    with pytest.raises(Interrupted) as interrupted:
        embed(checkpoint, folder, file, *options)
    assert interrupted.value.resumes
    assert sorted(path.name for path in parts.iterdir()) == ["0.npz"]
    (parts / ".unfinished.4.npz").write_bytes(b"a batch that was not written completely")
    seen.clear()
    embed(checkpoint, folder, file, *options)
    embed(checkpoint, folder, file, *options)
    assert seen == [3]  # nothing is computed again
    assert not parts.exists()
    with np.load(file, allow_pickle=False) as resumed:
        assert set(resumed) == set(expected)
        for name in set(expected) - {"progress"}:
            np.testing.assert_array_equal(resumed[name], expected[name])
    with pytest.raises(ValueError, match=r"for a different mean and std\. Choose"):
        embed(checkpoint, folder, file, "--mean", "0.5", "0.5", "0.5")
    with pytest.raises(ValueError, match=r"for a different layer\. Choose"):
        embed(checkpoint, folder, file, "--layer", "res3")
    (folder / "0.png").unlink()
    with pytest.raises(ValueError, match="for a different list of images and version of"):
        embed(checkpoint, folder, file)
    other = tmp_path / "other.npz"
    np.savez(other, features=np.zeros(3))
    with pytest.raises(ValueError, match=r"other\.npz is damaged, or another program or version"):
        embed(checkpoint, folder, other)


def test_embed__writes_same_values_to_tables(checkpoint, photos, tmp_path):
    whole = np.load(embed(checkpoint, photos, tmp_path / "f.npz"))["features"]
    with embed(checkpoint, photos, tmp_path / "f.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["file"] for row in rows][:3] == ["0.png", "1.png", "3.png"]
    values = [[float(row[f"feature{i}"]) for i in range(128)] for row in rows]
    assert np.array_equal(np.array(values, np.float32), whole)
    assert {path.suffix for path in tmp_path.iterdir()} == {".npz", ".csv"}
    with pytest.raises(SystemExit):
        embed(checkpoint, photos, tmp_path / "f.csv")


def test_embed__writes_non_utf8_names_to_tables(checkpoint, photos, tmp_path):
    for class_name in (b"caf\xe9", b"tea"):
        folder = os.fsencode(tmp_path / "photos") + b"/" + class_name
        os.makedirs(folder)
        shutil.copy(photos / "0.png", folder + b"/a.png")
    table = pandas.read_csv(embed(checkpoint, tmp_path / "photos", tmp_path / "f.csv"))
    assert table["file"].tolist() == ["caf\\xe9/a.png", "tea/a.png"]
    assert table["class"].tolist() == ["caf\\xe9", "tea"]


def test_nearest__excludes_the_image_itself(checkpoint, photos, tmp_path):
    folder = tmp_path / "photos"
    shutil.copytree(photos, folder)
    shutil.copy(folder / "0.png", folder / "copy.png")
    file = embed(checkpoint, folder, tmp_path / "f.npz")
    words = ["--nearest", str(file), "--no-features"]
    table = pandas.read_csv(embed(checkpoint, folder, tmp_path / "own.csv", *words))
    nearest = dict(zip(table["file"], table["nearest"], strict=True))
    assert nearest["0.png"] == "copy.png"
    assert nearest["copy.png"] == "0.png"
    assert all(name != other for name, other in nearest.items())
    assert set(table["file"][:2]) == {"0.png", "copy.png"}  # near duplicates come first
    assert table["similarity"][0] == pytest.approx(1)
    table = pandas.read_csv(embed(checkpoint, photos, tmp_path / "new.csv", *words))
    assert table["similarity"].min() == pytest.approx(1)  # these are copies in another folder
    with pytest.raises(ValueError, match=r"f\.npz was computed for a different layer\. Pass"):
        embed(checkpoint, photos, tmp_path / "g.csv", *words, "--layer", "res3")


def test_nearest__finds_the_name_for_a_single_photo(checkpoint, photos, tmp_path):
    file = embed(checkpoint, photos, tmp_path / "f.npz")
    words = ["--nearest", str(file), "--no-features"]
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "0.png").symlink_to(photos / "0.png")
    table = pandas.read_csv(embed(checkpoint, tmp_path / "one", tmp_path / "one.csv", *words))
    (nearest,) = table["nearest"]
    assert nearest in {"1.png", "3.png", "4.png", "5.png", "6.png"}  # a link is the image itself
    alone = embed(checkpoint, tmp_path / "one", tmp_path / "alone.npz")
    words[1] = str(alone)
    table = pandas.read_csv(embed(checkpoint, tmp_path / "one", tmp_path / "none.csv", *words))
    assert table["nearest"].isna().all()
    assert table["similarity"].isna().all()


def test_nearest__knows_photos_of_a_subfolder_and_changed_photos(checkpoint, photos, tmp_path):
    folder = tmp_path / "photos"
    shutil.copytree(photos, folder / "sub")
    shutil.copy(photos / "0.png", folder / "top.png")
    file = embed(checkpoint, folder, tmp_path / "f.npz")
    words = ["--nearest", str(file), "--no-features"]
    table = pandas.read_csv(embed(checkpoint, folder / "sub", tmp_path / "s.csv", *words))
    nearest = dict(zip(table["file"], table["nearest"], strict=True))
    assert nearest["0.png"] == "top.png"
    assert all(f"sub/{name}" != other for name, other in nearest.items())
    os.utime(folder / "top.png", (1, 1))
    with pytest.raises(ValueError, match=r"images in .*f\.npz have changed since"):
        embed(checkpoint, folder / "sub", tmp_path / "t.csv", *words)


def test_nearest__reuses_features_of_the_same_images(checkpoint, photos, tmp_path, monkeypatch):
    file = embed(checkpoint, photos, tmp_path / "f.npz")
    embed(checkpoint, photos, tmp_path / "expected.npz")
    monkeypatch.setattr("pirl_plugin.models.trunks.layer_features", None)
    embed(checkpoint, photos, tmp_path / "own.npz", "--nearest", str(file))
    own, expected = np.load(tmp_path / "own.npz"), np.load(tmp_path / "expected.npz")
    for name in expected.files:
        if name != "progress":
            np.testing.assert_array_equal(own[name], expected[name])
    assert len(own["nearest"]) == 6
    with pytest.raises(TypeError):  # other images
        embed(checkpoint, photos / "0.png", tmp_path / "other.csv", "--nearest", str(file))


def test_layer__is_written_by_embed_and_evaluated_by_knn(checkpoint, tmp_path):
    data = write_classes(tmp_path / "data", {"train": 8, "val": 4}, separable=True)
    file = embed(checkpoint, data / "val", tmp_path / "f.npz", "--layer", "res3")
    assert np.load(file)["features"].shape == (4, 32 * 4 * 4)  # a 4 × 4 grid for 32-px images
    words = ["knn", "--checkpoint", str(checkpoint), "--data", str(data), "--size", "32"]
    out = tmp_path / "out"
    run([*words, "--layer", "res3", "--out", str(out), "--no-untrained"])
    results = json.loads((out / "results.json").read_text())
    assert (results["layer"], results["knn_top1"]) == ("res3", 100.0)


class Grays(torch.utils.data.Dataset):
    """A data set with an unpicklable function, such as a transform in a user's script."""

    def __init__(self):
        self.make = lambda row: torch.full((3, 40, 50), 60 * row, dtype=torch.uint8)

    def __len__(self):
        return 3

    def __getitem__(self, row):
        return self.make(row), row


def test_extract_features__accepts_any_module_and_dataset():
    """A custom network is in evaluation mode during the call, and restored afterwards."""
    network = WideResNet(10, 0.25).train()
    network.bn1.eval()  # a frozen layer
    before = {name: value.clone() for name, value in network.state_dict().items()}
    features, readable = pirl_plugin.extract_features(
        network, Grays(), size=32, mean=[0.5] * 3, std=[0.25] * 3, batch=2, workers=1
    )
    assert readable.all()
    assert network.training
    assert not network.bn1.training
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())
    pixels = torch.stack([torch.full((3, 32, 32), (60 * i / 255 - 0.5) / 0.25) for i in range(3)])
    with torch.no_grad():
        torch.testing.assert_close(features, network.eval()(pixels))


def test_extract_features__finds_record_of_wrapped_trunk(photos):
    trunk = WideResNet(10, width=0.25)
    trunk.network_config = NetworkConfig(size=32, mean=(0.5,) * 3)
    expected, _ = extract_features(trunk, photos)
    features, _ = extract_features(torch.nn.DataParallel(trunk), photos)
    torch.testing.assert_close(features, expected, equal_nan=True)
