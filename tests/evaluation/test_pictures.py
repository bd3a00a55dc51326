"""A page's images: colors, names and predicted classes."""

import base64
import io
import os

import numpy as np
import pytest
import torch
from PIL import Image

from pirl_plugin.evaluation.page import TEMPLATE, write_page
from pirl_plugin.evaluation.pictures import choose_display, page_images
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
    content = base64.b64decode(picture.partition(",")[2])
    return np.array(Image.open(io.BytesIO(content))).max(axis=(0, 1)).tolist()


def sentence(images, folder):
    """Return a page's sentence about its colors."""
    write_page(folder / "colors.html", TEMPLATE.with_name("colors.html.j2"), images=images)
    return (folder / "colors.html").read_text().strip()


def test_pictures__share_one_range(tmp_path):
    """A dark image used to be stretched until its noise was white."""
    source = open_source(cells(1000, 1000, 20))
    images = page_images(source, range(3), choose_display(source, source.usual_reading))
    assert brightest(images.picture(0)) == pytest.approx([255] * 3, abs=3)
    assert brightest(images.picture(2)) == pytest.approx([5] * 3, abs=3)
    assert "red is channel 0 (0 to 1,000)" in sentence(images, tmp_path)
    assert "the same for all pictures" in sentence(images, tmp_path)


@pytest.mark.parametrize(
    ("channels", "show", "caption"),
    [
        (5, (4, 2, 0), "red is channel 4 (0 to 5,000)"),
        (5, (3, 3, 3), "Pictures show channel 3, from black to white: 0 to 4,000"),
        (2, None, "Pictures show channel 0, from black to white"),
        (1, None, "Pictures show channel 0, from black to white"),
    ],
)
def test_display__names_its_channels(channels, show, caption, tmp_path):
    source = open_source(cells(1000, channels=channels))
    images = page_images(source, [0], choose_display(source, source.usual_reading, show))
    assert caption in sentence(images, tmp_path)
    assert brightest(images.picture(0)) == pytest.approx([255] * 3, abs=3)


def test_display__keeps_rgb(tmp_path):
    save_gray(tmp_path / "a.png", level=90, size=(40, 40))
    source = FolderSource(tmp_path)
    images = page_images(source, [0], choose_display(source, Reading()))
    assert sentence(images, tmp_path) == ""
    assert brightest(images.picture(0)) == [90] * 3
    (tmp_path / "a.png").write_bytes(b"damaged")  # all unreadable
    choose_display(source, Reading(RGB._replace(channels=5)))


def test_names__are_relative_to_the_common_folder_and_printable(tmp_path):
    names = ["a/b/1.png", "a/b/<b>2\n.png", os.fsdecode(b"a/c/caf\xe9.png")]
    for name in names:
        save_gray(tmp_path / name)
    (tmp_path / "list.txt").write_bytes(
        b"\n".join(os.fsencode(tmp_path / name) for name in (names[0], names[2]))
    )
    source = FolderSource(tmp_path)
    images = page_images(source, range(3), choose_display(source, Reading()))
    found = {images.name(number) for number in range(3)}
    assert found == {"b/1.png", "b/<b>2\\n.png", "c/caf\\xe9.png"}
    assert images.folder == str(tmp_path / "a")


def test_predictions__contradict_only_known_labels(image_folder):
    source = FolderSource(image_folder / "train")  # 10 ants, then 10 bees
    images = page_images(source, range(20), choose_display(source, Reading()))
    images.labels[19] = ""
    numbers = [0, 1, 2, 10, 19]
    indices = torch.tensor([0, 1, 1, 2, 0])
    probability = torch.tensor([0.9, 0.6, 0.8, 0.7, 0.99])
    predicted = images.with_predictions(numbers, indices, probability, ["ants", "bees", "wasps"])
    assert predicted.mistakes == [2, 10, 1]
    assert predicted.strips == {"ants": [0, 19], "bees": [1, 2], "wasps": [10]}
    assert predicted.confusion == {"ants": [1, 2, 0], "bees": [0, 0, 1], "wasps": [0, 0, 0]}
    fewer = images.with_predictions([2, 10], torch.tensor([0, 1]), torch.ones(2), ["bees", "wasps"])
    assert fewer.mistakes == [10]  # ants could not be predicted
