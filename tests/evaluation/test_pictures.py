"""Pictures for pages: colors, names and predicted classes."""

import base64
import io
import os

import numpy as np
import pytest
import torch
from PIL import Image

from pirl_plugin.evaluation.pictures import choose_display, show_images
from pirl_plugin.evaluation.predictions import Predictions
from pirl_plugin.images.folders import FolderSource
from pirl_plugin.images.opening import open_source
from pirl_plugin.images.reading import RGB, Reading
from tests.helpers.images import save_gray


def cells(*levels, channels=5):
    """Return 16-bit images, black on the left; on the right, the channels are 1, 2, … × level."""
    right = (np.arange(64) >= 32) * np.ones((64, 64))
    factors = np.arange(1, channels + 1)
    return [(level * factors * right[..., None]).astype(np.uint16) for level in levels]


def brightest(picture):
    content = base64.b64decode(picture.image.partition(",")[2])
    return np.array(Image.open(io.BytesIO(content))).max(axis=(0, 1)).tolist()


def test_pictures__share_one_range():
    """A dark image used to be stretched until its noise was white."""
    source = open_source(cells(1000, 1000, 20))
    shown = show_images(source, range(3), choose_display(source, source.usual_reading))
    assert brightest(shown.picture(0)) == pytest.approx([255] * 3, abs=3)
    assert brightest(shown.picture(2)) == pytest.approx([5] * 3, abs=3)
    assert "red is channel 0 (0 to 1,000)" in shown.display.caption
    assert "the same for all pictures" in shown.display.caption


@pytest.mark.parametrize(
    ("channels", "show", "caption"),
    [
        (5, (4, 2, 0), "red is channel 4 (0 to 5,000)"),
        (5, (3, 3, 3), "Pictures show channel 3, from black to white: 0 to 4,000"),
        (2, None, "Pictures show channel 0, from black to white"),
        (1, None, "Pictures show channel 0, from black to white"),
    ],
)
def test_display__names_its_channels(channels, show, caption):
    source = open_source(cells(1000, channels=channels))
    display = choose_display(source, source.usual_reading, show)
    assert caption in display.caption
    picture = show_images(source, [0], display).picture(0)
    assert brightest(picture) == pytest.approx([255] * 3, abs=3)


def test_display__keeps_rgb(tmp_path):
    save_gray(tmp_path / "a.png", level=90, size=(40, 40))
    source = FolderSource(tmp_path)
    display = choose_display(source, Reading())
    assert display.caption == ""
    assert brightest(show_images(source, [0], display).picture(0)) == [90] * 3
    (tmp_path / "a.png").write_bytes(b"damaged")  # all unreadable
    assert choose_display(source, Reading(RGB._replace(channels=5))).caption


def test_names__are_relative_to_the_common_folder_and_printable(tmp_path):
    names = ["a/b/1.png", "a/b/<b>2\n.png", os.fsdecode(b"a/c/caf\xe9.png")]
    for name in names:
        save_gray(tmp_path / name)
    (tmp_path / "list.txt").write_bytes(
        b"\n".join(os.fsencode(tmp_path / name) for name in (names[0], names[2]))
    )
    source = FolderSource(tmp_path)
    shown = show_images(source, range(3), choose_display(source, Reading()))
    found = {shown.name(number) for number in range(3)}
    assert found == {"b/1.png", "b/<b>2\\n.png", "c/caf\\xe9.png"}
    assert shown.folder == str(tmp_path / "a")
    assert shown.picture(0).name == shown.name(0)


def test_predictions__contradict_only_known_labels(image_folder):
    source = FolderSource(image_folder / "train")  # 10 ants, then 10 bees
    shown = show_images(source, range(20), choose_display(source, Reading()))
    shown.labels[19] = -1
    of_number = {
        0: ("ants", 0.9),
        1: ("bees", 0.6),
        2: ("bees", 0.8),
        10: ("wasps", 0.7),
        19: ("ants", 0.99),  # unlabeled
    }
    predictions = Predictions(shown, of_number, ["ants", "bees", "wasps"])
    assert predictions.disagreeing() == [2, 10, 1]
    (group,) = predictions.disagreements("Title").groups
    assert group.pictures[0].name == shown.name(2)
    assert group.pictures[0].note == "predicted: bees, 80 %"
    assert Predictions(shown, of_number, ["bees", "wasps"]).disagreeing() == [10]
    ants, bees, wasps = predictions.least_certain().groups
    assert [picture.note[-4:] for picture in ants.pictures] == ["90 %", "99 %"]
    assert bees.title == "bees: 2 images"
    assert predictions.confusion()["ants"] == [1, 2, 0]
    assert predictions.confusion()["bees"] == [0, 0, 1]
    assert wasps.title == "wasps: 1 image"


def test_predictions__without_disagreement_have_no_section(image_folder):
    source = FolderSource(image_folder / "train")
    shown = show_images(source, [0], choose_display(source, Reading()))
    predictions = Predictions(shown, {0: ("ants", 1.0)}, ["ants", "bees"])
    assert not predictions.disagreements("Title").groups
    assert torch.equal(shown.labels, torch.tensor([0]))
