"""``pirl-plugin knn`` on generated images."""

import itertools
import json
import re
import shutil

import numpy as np
import pytest
import torch
from torchvision.transforms.v2 import functional as tv

from pirl_plugin.checkpoints.load import load_trunk
from pirl_plugin.checkpoints.write import save_trunk
from pirl_plugin.cli import run
from pirl_plugin.evaluation.crops import Crops
from pirl_plugin.evaluation.features import Batch, collect, compute_features
from pirl_plugin.images.folders import FolderSource
from pirl_plugin.images.joined import JoinedSource
from pirl_plugin.images.reading import Reading
from pirl_plugin.models.network_config import NetworkConfig
from pirl_plugin.models.preprocessing import normalize_images
from pirl_plugin.models.resnet import WideResNet
from tests.helpers.host_tools import write_checkpoint, write_classes


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("trunk") / "small.torch", DEPTH=10)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    return write_classes(folder, {"train": 12, "val": 6}, separable=True, classes=3)


def pixels(crops):
    return torch.stack([crops[row][0] for row in range(len(crops))])


def knn(checkpoint, data, out, *options):
    given = ["--checkpoint", str(checkpoint), "--data", str(data), "--out", str(out)]
    run(["knn", *given, *options])
    return json.loads((out / "results.json").read_text())


def test_knn__joins_list_classes_by_name(checkpoint, data, tmp_path):
    for split in ("train", "val"):
        files = sorted((data / split).rglob("*.png"))
        lines = ["path,label", *(f"{file},{file.parent.name}" for file in files)]
        (tmp_path / f"{split}.csv").write_text("\n".join(lines))
    lists = ["--train", str(tmp_path / "train.csv"), "--val", str(tmp_path / "val.csv")]
    words = ["--checkpoint", str(checkpoint), *lists, "--size", "32", "--no-untrained"]
    words = ["knn", *words, "--out", str(tmp_path)]
    run(words)
    results = json.loads((tmp_path / "results.json").read_text())
    assert (results["knn_top1"], results["classes"]) == (100.0, 3)
    (tmp_path / "val.csv").write_text("\n".join([lines[0], *lines[3:]]))  # without class0
    run(words)
    results = json.loads((tmp_path / "results.json").read_text())
    assert (results["knn_top1"], results["test_images"]) == (100.0, 4)


def test_knn__holds_out_groups_of_a_pattern(tmp_path, capsys):
    """Two channels make an image, and the images of a plate have the same label."""
    rng = np.random.default_rng(0)
    for plate, well, channel in itertools.product(range(8), range(3), range(2)):
        pixels = rng.integers(0, 900, (32, 32), dtype=np.uint16)
        folder = tmp_path / "plates" / f"{'ab'[plate % 2]}-{plate}"
        folder.mkdir(parents=True, exist_ok=True)
        np.save(folder / f"{well}_w{channel}.npy", pixels)
    pattern = r"(?P<group>(?P<label>\w)-\d)/\d_(?P<channel>\w\d)\.npy"
    trunk = tmp_path / "trunk.torch"
    save_trunk(WideResNet(10, 0.25, in_channels=2), trunk)
    words = [
        "knn",
        "--checkpoint",
        str(trunk),
        "--data",
        str(tmp_path / "plates"),
        "--no-untrained",
    ]
    out = ["--out", str(tmp_path / "out"), "--layer", "last", "--size", "32"]
    run([*words, *out, "--pattern", pattern])
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert (results["train_images"], results["test_images"]) == (18, 6)
    assert " in 2 of 8 groups are held out for testing" in capsys.readouterr().out


def test_knn__finds_separable_classes(checkpoint, data, tmp_path, capsys):
    options = ["--size", "32", "-k", "3", "30", "--batch", "5", "--workers", "1"]
    page = tmp_path / "report.html"
    results = knn(checkpoint, data, tmp_path, *options, "--report", str(page))
    assert results["knn_top1"] == results["top1_by_k"]["3"] == 100.0
    assert list(results["top1_by_k"]) == ["3", "30"]
    found = {key: results[key] for key in ("classes", "train_images", "test_images", "k")}
    assert found == {"classes": 3, "train_images": 12, "test_images": 6, "k": 3}
    assert results["chance_top1"] == 33.33
    assert 0 <= results["untrained_top1"] <= 100
    captured = capsys.readouterr()
    assert "kNN top-1 100.00 % (k = 3; most frequent class 33.33 %" in captured.out
    assert "images/s" in captured.err  # followed by the remaining time
    html = page.read_text()
    assert "100.0 ± 24.8 % of 6 test images are classified correctly." in html
    assert "kNN, k = 3" in html
    layers = results["top1_by_layer"]
    assert list(layers) == ["conv1", "res2", "res3", "res4", "res5", "last"]
    assert layers["last"] == [results["knn_top1"], results["untrained_top1"]]
    assert "  last               100.00" in captured.out
    assert "Layers by kNN, 6 test images" in html
    assert "://" not in html  # nothing is loaded from the web


def test_compute_features__match_all_images_at_once(checkpoint, data):
    trunk = load_trunk(checkpoint)
    source = FolderSource(data / "train")
    batches = compute_features(
        lambda images: [trunk(images)], source, NetworkConfig(size=32), range(12), batch=5
    )
    collected = collect(batches, 12)
    expected = trunk(normalize_images(pixels(Crops(source, 32, Reading()))))
    torch.testing.assert_close(collected.features[0].float(), expected, rtol=1e-3, atol=1e-3)
    assert collected.readable.all()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["embed", "--out", "f.txt"], "--out: f.txt: expected a name that ends in .npz, .csv"),
        (
            ["knn", "--checkpoint", "."],
            "--checkpoint: . is a folder; choose a file, such as checkpoint",
        ),
        (["knn", "--checkpoint", "gone.torch"], "--checkpoint: gone.torch does not exist"),
        (["knn", "--report", "run/config.yaml"], "--report: run/config.yaml: expected a name that"),
        (["knn", "--timm-option", "size"], "--timm-option: size: expected KEY=VALUE, in YAML"),
        (["knn", "--timm-option", "a=["], "--timm-option: a=[: expected KEY=VALUE, in YAML"),
        (
            ["knn", "--report", "/proc/page.html"],
            "--report: /proc/page.html: /proc is not a writable folder",
        ),
        (["export", "--out", "run/log.txt"], "--out: run/log.txt exists in a run's folder; "),
    ],
)
def test_commands__refuse_before_computing_features(words, sentence, tmp_path, monkeypatch, capsys):
    (tmp_path / "run").mkdir()
    for name in (".lock", "log.txt"):
        (tmp_path / "run" / name).touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.access", lambda folder, mode: str(folder) != "/proc")  # also for root
    other_options = ["--to", "torchvision"] if words[0] == "export" else ["--data", "."]
    if "--checkpoint" not in words:
        words += ["--checkpoint", "run/log.txt"]
    with pytest.raises(SystemExit) as ended:
        run([*words, *other_options])
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert f"argument {sentence}" in error
    assert error.count("\n") == 2  # one line of usage


def test_features__keep_direction_beyond_float16_range():
    """Deep networks with random weights exceed it; the error message blamed the checkpoint."""
    features = torch.randn(12, 5, generator=torch.Generator().manual_seed(0))
    features[1:] *= 1e12
    batch = Batch([features], torch.ones(12, dtype=torch.bool), torch.arange(12))
    half = collect([batch], 12).features[0].float()
    torch.testing.assert_close(half[0], features[0], rtol=1e-3, atol=0)
    cosines = torch.nn.functional.cosine_similarity(half, features)
    torch.testing.assert_close(cosines, torch.ones(12))


def test_knn__counts_shared_test_images(checkpoint, data, tmp_path, monkeypatch, caplog):
    """Each image is still read only once, while features are computed."""
    folder = tmp_path / "data"
    shutil.copytree(data, folder)
    shutil.copy(folder / "train" / "class1" / "1.png", folder / "val" / "class1" / "copy.png")
    read = []
    load = JoinedSource.try_read
    monkeypatch.setattr(JoinedSource, "try_read", lambda *row: read.append(row) or load(*row))
    options = ["--size", "32", "--layer", "last", "--no-untrained", "--workers", "0"]
    knn(checkpoint, folder, tmp_path / "out", *options)
    message = f"1 of 7 test images are also training images.*first: {folder}/val/class1/copy.png"
    assert len(re.findall(message, caplog.text)) == 1
    assert len(read) == 19


def test_knn__counts_conflicting_labels(checkpoint, data, tmp_path, caplog):
    """Files are matched by content, not name: here, the second one is a symbolic link."""
    folder = tmp_path / "data"
    shutil.copytree(data, folder)
    link = folder / "train" / "class0" / "link.png"
    link.symlink_to(folder / "train" / "class1" / "1.png")
    knn(checkpoint, folder, tmp_path / "out", "--size", "32", "--no-untrained", "--workers", "0")
    assert (
        "2 of 19 images have the same pixels as an image with another label "
        f"(first: {link})." in caplog.text
    )


def test_knn__counts_unreadable_images(checkpoint, data, tmp_path):
    folder = tmp_path / "data"
    shutil.copytree(data, folder)
    (folder / "train" / "class0" / "0.png").write_bytes(b"no image")
    shutil.copy(folder / "train" / "class0" / "3.png", folder / "train")  # unlabeled
    results = knn(checkpoint, folder, tmp_path, "--size", "32")
    assert [results[key] for key in ("train_images", "test_images", "unreadable")] == [11, 6, 1]
    for path in (folder / "val").rglob("*.*"):
        path.write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"labeled, readable images, and .* has 0"):
        knn(checkpoint, folder, tmp_path, "--size", "32")


def test_load_trunk__matches_features_of_vissls_trunk(tmp_path):
    from vissl.models.trunks import MODEL_TRUNKS_REGISTRY
    from vissl.utils.hydra_config import compose_hydra_configuration, convert_to_attrdict

    overrides = ["config=benchmark/pirl/linear_imagenet1k"]
    composed = compose_hydra_configuration(overrides)
    model = convert_to_attrdict(composed, dump_config=False)[1].MODEL
    torch.manual_seed(0)
    theirs = MODEL_TRUNKS_REGISTRY["resnet"](model, "resnet").eval()
    state = {"model": {"trunk": theirs.state_dict(), "heads": {}}}
    torch.save({"classy_state_dict": {"base_model": state}}, tmp_path / "vissl.torch")
    ours = load_trunk(tmp_path / "vissl.torch")
    images, names = torch.randn(1, 3, 64, 64), ["conv1", "res3", "flatten"]
    with torch.no_grad():
        for mine, expected in zip(
            ours.named_features(images, names), theirs(images, names), strict=True
        ):
            torch.testing.assert_close(mine.flatten(), expected.flatten())


def test_knn__refuses_mismatched_folders(checkpoint, data, tmp_path):
    odd = tmp_path / "odd"
    shutil.copytree(data, odd)
    shutil.rmtree(odd / "train" / "class2")
    with pytest.raises(ValueError, match=r"classes without training images: class2"):
        knn(checkpoint, odd, tmp_path)
    with pytest.raises(ValueError, match=r"class0 has no labels\. Make one folder per class"):
        knn(checkpoint, data / "train" / "class0", tmp_path)


def test_knn__refuses_unknown_layer(checkpoint, data, tmp_path):
    with pytest.raises(ValueError, match=r"^--layer = 'res9': expected one of conv1, res2"):
        knn(checkpoint, data, tmp_path, "--layer", "res9")


def test_knn__uses_recorded_size_and_statistics(checkpoint, data, tmp_path, monkeypatch):
    """Runs at 64 px used to be evaluated at 224 px, with ImageNet's mean and standard deviation."""
    trunk = load_trunk(checkpoint)
    trunk.network_config = trunk.network_config.with_values(
        "test", size=64, mean=[0.1, 0.2, 0.3], std=[0.5, 0.6, 0.7]
    )
    save_trunk(trunk, tmp_path / "checkpoint.torch")
    images = pixels(Crops(FolderSource(data / "val"), 64, Reading()))
    expected = tv.normalize(images / 255, [0.1, 0.2, 0.3], [0.5, 0.6, 0.7])
    seen, forward = [], WideResNet.named_features

    def see(trunk, images, *keys):
        seen.append(images.cpu())
        return forward(trunk, images, *keys)

    monkeypatch.setattr(WideResNet, "named_features", see)
    results = knn(tmp_path / "checkpoint.torch", data, tmp_path / "out", "--no-untrained")
    assert (results["size"], results["untrained_top1"]) == (64, None)
    torch.testing.assert_close(torch.cat(seen)[-6:], expected)
