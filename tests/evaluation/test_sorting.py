"""Sorting images into one folder per predicted class."""

import pytest
import torch

from pirl_plugin.checkpoints.classifier import Classifier
from pirl_plugin.checkpoints.write import save_trunk
from pirl_plugin.cli import run
from pirl_plugin.evaluation.sorting import claim_sorted, sort_images
from pirl_plugin.images.folders import FolderSource
from pirl_plugin.images.opening import open_source
from pirl_plugin.models.resnet import WideResNet
from tests.helpers.images import save_gray


@pytest.fixture
def source(tmp_path):
    for number, name in enumerate(("a/1.png", "b/1.png")):
        save_gray(tmp_path / "photos" / name, number)
    return FolderSource(tmp_path / "photos")


def test_sort_images__links_images_with_equal_names(source, tmp_path):
    folder = tmp_path / "out"
    (folder / "cat").mkdir(parents=True)
    (folder / "cat" / "1.png").write_text("mine")
    for _ in range(2):  # run again, without new links
        sort_images(folder, source, [0, 1], ["cat", "cat"])
    assert sorted(path.name for path in (folder / "cat").iterdir()) == [
        "1.png",
        "1_2.png",
        "1_3.png",
    ]
    assert (folder / "cat" / "1.png").read_text() == "mine"
    assert (folder / "cat" / "1_3.png").resolve() == tmp_path / "photos" / "b" / "1.png"


def test_sort_images__links_each_channel(tmp_path):
    for channel in ("dapi", "actin"):
        save_gray(tmp_path / "wells" / f"1_{channel}.png")
    source = FolderSource(tmp_path / "wells", pattern=r"\d_(?P<channel>\w+)\.png")
    sort_images(tmp_path / "sorted", source, [0], ["treated"])
    links = sorted(path.name for path in (tmp_path / "sorted" / "treated").iterdir())
    assert links == ["1_actin.png", "1_dapi.png"]


def test_sort_images__copies_if_links_fail(source, tmp_path, monkeypatch):
    def fail(*paths):
        raise PermissionError

    monkeypatch.setattr("pathlib.Path.symlink_to", fail)
    sort_images(tmp_path / "out", source, [0, 1], ["cat", "cat"])
    copy = tmp_path / "out" / "cat" / "1_2.png"
    assert copy.read_bytes() == (tmp_path / "photos" / "b" / "1.png").read_bytes()
    assert not copy.is_symlink()


@pytest.mark.parametrize("name", ["..", "a/b", ""])
def test_claim_sorted__refuses_unsafe_names(name, source, tmp_path):
    classifier = Classifier(torch.ones(2, 4), torch.zeros(2), ["cat", name], "last")
    with pytest.raises(ValueError, match="cannot be a folder name"):
        claim_sorted(tmp_path / "out", source, classifier)


CAT = Classifier(torch.ones(1, 4), torch.zeros(1), ["cat"], "last")
DOG = Classifier(torch.ones(1, 4), torch.zeros(1), ["dog"], "last")


def test_claim_sorted__refuses_another_classifier_and_other_files(source, tmp_path):
    for _ in range(2):
        claim_sorted(tmp_path / "out", source, CAT)
    with pytest.raises(ValueError, match="belongs to the run with classes"):
        claim_sorted(tmp_path / "out", source, DOG)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").touch()
    with pytest.raises(ValueError, match="mine is not empty"):
        claim_sorted(tmp_path / "mine", source, CAT)


@pytest.mark.parametrize("name", ["photos", "photos/sorted", ""])
def test_claim_sorted__refuses_the_folder_that_is_read(name, source, tmp_path):
    with pytest.raises(ValueError, match="would be read again as images"):
        claim_sorted(tmp_path / name, source, CAT)


def test_claim_sorted__refuses_arrays_without_a_picture_format(tmp_path):
    with pytest.raises(ValueError, match="there is no picture format"):
        claim_sorted(tmp_path / "out", open_source([torch.zeros(5, 4, 4)]), CAT)
    claim_sorted(tmp_path / "out", open_source([torch.zeros(3, 4, 4, dtype=torch.uint8)]), CAT)


def test_min_probability__leaves_uncertain_images_out_of_the_classes(source, tmp_path):
    trunk = WideResNet(10, 0.125)
    photos = str(tmp_path / "photos")
    for names, words in ((["cat", "dog"], ["cat", "unsure"]), (["unsure", "dog"], [])):
        folder = tmp_path / names[0]
        file = f"{folder}.torch"
        head = Classifier(torch.zeros(2, 64), torch.tensor([0.5, 0.0]), names, "last")
        save_trunk(trunk, file, head)  # 62 % for the first class
        command = ["embed", "--checkpoint", file, "--data", photos, "--size", "32", "--no-features"]
        command += ["--out", f"{folder}.csv", "--sort-into", str(folder), "--min-probability"]
        if not words:
            with pytest.raises(ValueError, match="has a class unsure, which --min-probability"):
                run([*command, "0.7"])
            continue
        run([*command, "0.7"])
        assert {path.name for path in folder.iterdir()} == {"unsure", "run.json"}
        assert len(list((folder / "unsure").iterdir())) == 2
