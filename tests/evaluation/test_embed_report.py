"""``pirl-plugin embed --report``: sections by what is known of the images."""

import json
import re
import shutil
import sys

import numpy as np
import pytest
import tifffile
import torch

from pirl_plugin.checkpoints.classifier import Classifier
from pirl_plugin.checkpoints.load import load_trunk
from pirl_plugin.checkpoints.write import save_trunk
from pirl_plugin.cli import run
from pirl_plugin.models.resnet import WideResNet
from tests.helpers.host_tools import write_checkpoint, write_classes, write_colored


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trunk")
    return write_checkpoint(folder / "10.torch", seed=1, DEPTH=10, WIDTH_MULTIPLIER=0.25)


def report(checkpoint, data, out, *options):
    """Run the command, and return the page and the map's content."""
    words = ["--checkpoint", str(checkpoint), "--data", str(data), "--size", "32"]
    page = out / "page.html"
    run(["embed", *words, "--out", str(out / "f.npz"), "--report", str(page), *options])
    html = page.read_text()
    content = re.search(r'id="map-content">(.*?)</script>', html)[1]
    return html, json.loads(content)


def test_report__of_unlabeled_images(checkpoint, tmp_path, monkeypatch, capsys):
    """A name with markup stays text, also within the script element."""
    photos = tmp_path / "photos"
    photos.mkdir()
    rng = np.random.default_rng(0)
    name = "<img src=x onerror=alert(1)>&'\"<!--.png"
    for file in (name, "b.png", "c.png"):
        write_colored(photos / file, 1, rng)
    shutil.copy(photos / "b.png", photos / "copy.png")
    html, content = report(checkpoint, photos, tmp_path)
    assert sorted(content["names"]) == sorted([name, "b.png", "c.png", "copy.png"])
    assert content["labels"] == [""] * 4
    assert "<img src=x" not in html
    assert "map of 4 images: about 1 s" in capsys.readouterr().out
    assert html.index("<h3>equal pixels</h3>") < html.index("<h3>similarity")
    assert "Predicted classes" not in html
    assert "Images unlike their class" not in html
    # The features are in the file, and are not computed a second time.
    monkeypatch.setattr("pirl_plugin.models.trunks.layer_features", None)
    assert report(checkpoint, photos, tmp_path) == (html, content)


def test_report__of_labeled_images_lists_those_unlike_their_class(checkpoint, tmp_path):
    data = write_classes(tmp_path / "data", {"train": 24}, separable=True, classes=2)
    misfiled = data / "train" / "class1" / "misfiled.png"
    shutil.move(data / "train" / "class0" / "0.png", misfiled)
    html, content = report(checkpoint, data / "train", tmp_path)
    assert "For 1 of 24 labeled images, most of the nearest images have another class." in html
    section = html[html.index("Images unlike their class") : html.index("Near duplicates")]
    assert re.findall(r'<span title="(.*?)"', section) == ["class1/misfiled.png"]
    row = content["names"].index("class1/misfiled.png")
    assert (content["labels"][row], content["predicted"][row]) == ("class1", "class0")


def test_report__with_classifier(checkpoint, tmp_path):
    data = write_classes(tmp_path / "data", {"train": 8}, separable=True, classes=2)
    trunk = load_trunk(checkpoint)
    classifier = Classifier(
        torch.zeros(2, trunk.num_features), torch.tensor([1.0, 0.0]), ["class0", "zebra"], "last"
    )
    save_trunk(trunk, tmp_path / "classifier.torch", classifier)
    html, content = report(tmp_path / "classifier.torch", data / "train", tmp_path)
    # class1 cannot be predicted, so those four images do not count.
    assert "differs from the label for 0 of 4 labeled images (0.0 %)." in html
    assert content["predicted"] == ["class0"] * 8
    assert content["percent"] == [73] * 8  # e / (e + 1)
    assert "<h3>class0: 8 images</h3>" in html


def test_report__shows_chosen_channels(tmp_path):
    """A page names its colors; a channel that does not exist is refused before the work."""
    rng = np.random.default_rng(0)
    (tmp_path / "cells").mkdir()
    for number in range(4):
        pixels = rng.integers(0, 1000, (5, 32, 32), dtype=np.uint16)
        file = tmp_path / "cells" / f"{number}.tif"
        tifffile.imwrite(file, pixels, photometric="minisblack")
    trunk = WideResNet(10, 0.25, in_channels=5)
    save_trunk(trunk, tmp_path / "5.torch")
    words = [tmp_path / "5.torch", tmp_path / "cells", tmp_path, "--show", "4", "2"]
    with pytest.raises(ValueError, match="--show = '5': expected one of 0, 1, 2, 3, 4"):
        report(*words, "5")
    assert not (tmp_path / "f.npz").exists()
    html, _ = report(*words, "0")
    assert "In pictures, red is channel 4 (" in html


def test_report__needs_scikit_learn_before_the_work(checkpoint, tmp_path, monkeypatch):
    (tmp_path / "photos").mkdir()
    write_colored(tmp_path / "photos" / "a.png", 1, np.random.default_rng(0))
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(ModuleNotFoundError, match="scikit-learn is not installed"):
        report(checkpoint, tmp_path / "photos", tmp_path)
    assert not (tmp_path / "f.npz").exists()
