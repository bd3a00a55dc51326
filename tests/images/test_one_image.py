"""A single image suffices everywhere except in a memory bank."""

import json

import numpy as np
import pytest

import pirl_plugin
from pirl_plugin.checkpoints.write import save_trunk
from pirl_plugin.cli import run
from pirl_plugin.images.folders import FolderSource
from pirl_plugin.images.image_dataset import ImageDataset
from pirl_plugin.images.labeled import open_labeled
from pirl_plugin.images.opening import open_source
from pirl_plugin.models.resnet import ResNetTrunk
from pirl_plugin.views.base import ImageViews
from tests.helpers.images import save_gray
from tests.helpers.kinds import KINDS, gray, open_kind, write_kind


@pytest.fixture
def photo(tmp_path):
    """Create a folder with one photo and return the photo's path."""
    save_gray(tmp_path / "photos" / "1.png", 9)
    return tmp_path / "photos" / "1.png"


def test_library__accepts_one_image(photo):
    network = pirl_plugin.WideResNet(10, 0.25)
    for place in (photo, str(photo), photo.parent, [photo], [gray(9)]):
        assert ImageDataset(place, ImageViews(image_size=8))[0]["index"] == 0
        features, readable = pirl_plugin.extract_features(network, place, size=32)
        assert (tuple(features.shape), readable.tolist()) == ((1, 128), [True])


def test_bank__needs_two_images():
    with pytest.raises(ValueError, match=r"num_train_samples = 1: .* at least 2"):
        pirl_plugin.PIRLLoss(1)


@pytest.mark.parametrize("place", ["", "1.png"])
def test_embed__accepts_one_image(place, photo, tmp_path):
    save_trunk(ResNetTrunk(10, 0.25), tmp_path / "trunk.torch")
    words = ["--checkpoint", str(tmp_path / "trunk.torch"), "--data", str(photo.parent / place)]
    run(["embed", *words, "--out", str(tmp_path / "f.npz"), "--size", "32"])
    assert np.load(tmp_path / "f.npz")["features"].shape == (1, 128)


def test_prepare__accepts_one_image(photo, tmp_path):
    run(["prepare", str(photo.parent), str(tmp_path / "copy"), "--workers", "0"])
    assert len(FolderSource(tmp_path / "copy")) == 1
    with pytest.raises(ValueError, match=r"IN = .*1\.png is a file"):
        run(["prepare", str(photo), str(tmp_path / "other")])


@pytest.mark.parametrize("kind", KINDS)
def test_test_split__may_have_one_image(kind, tmp_path):
    root = write_kind(
        kind, tmp_path, {"train": [("a", gray(1)), ("b", gray(2))], "val": [("b", gray(3))]}
    )
    assert open_kind(kind, root).test_labels.tolist() == [1]


def test_metadata__labels_images_in_a_folder(tmp_path):
    """The ImageFolder layout of the ``datasets`` package."""
    for split in ("train", "test"):
        for number in range(2):
            save_gray(tmp_path / split / f"{number}.png", number)
        rows = [{"file_name": f"{number}.png", "label": "ba"[number]} for number in range(2)]
        lines = "".join(f"{json.dumps(row)}\n" for row in rows)
        (tmp_path / split / "metadata.jsonl").write_text(lines)
    data = open_labeled(tmp_path)
    assert (data.classes, data.test_labels.tolist()) == (["a", "b"], [1, 0])


def test_hugging_face__reads_no_file_outside_its_folder(tmp_path):
    rows = [("a", gray(1)), ("b", gray(2))]
    root = write_kind("arrow", tmp_path / "in", {"train": rows, "test": rows})
    planted = write_kind("arrow", tmp_path / "planted", {"train": [("x", gray(7))] * 3})
    state = root / "train" / "state.json"
    content = json.loads(state.read_text())
    planted_file = next(planted.glob("train/*.arrow"))
    content["_data_files"] = [{"filename": f"../../planted/train/{planted_file.name}"}]
    state.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="outside its own folder"):
        open_source(root / "train")
