"""The map's data: positions, nearest images, tiles and size."""

import base64
import io
import json

import numpy as np
import pytest
import torch
from PIL import Image

from pirl_plugin.evaluation import image_map
from pirl_plugin.evaluation.image_map import draw_map
from pirl_plugin.evaluation.pictures import choose_display, page_images
from pirl_plugin.images.folders import FolderSource
from pirl_plugin.images.opening import open_source
from pirl_plugin.images.reading import Reading
from tests.helpers.images import save_gray


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Create 60 gray images in three classes, from dark to bright."""
    folder = tmp_path_factory.mktemp("gray")
    for number in range(60):
        save_gray(folder / "abc"[number // 20] / f"{number:02}.png", 4 * number, (40, 40))
    source = FolderSource(folder)
    return page_images(source, range(60), choose_display(source, Reading()))


@pytest.fixture(scope="module")
def features():
    """Return 60 features in three tight clusters."""
    centers = torch.eye(3, 8).repeat_interleave(20, dim=0)
    return centers + 0.05 * torch.randn(60, 8, generator=torch.Generator().manual_seed(0))


def test_map__places_clusters_apart_and_repeats(images, features):
    drawn = draw_map(images, features)
    content = drawn.content(images)
    places = np.array([content["x"], content["y"]]).T
    clusters = places.reshape(3, 20, 2)
    spread = np.linalg.norm(clusters - clusters.mean(1, keepdims=True), axis=2).max()
    means = clusters.mean(1)
    gaps = [np.linalg.norm(means[a] - means[b]) for a, b in ((0, 1), (0, 2), (1, 2))]
    assert min(gaps) > spread
    nearest = np.array(content["nearest"])
    assert (nearest // 20 == np.arange(60)[:, None] // 20).all()
    assert (nearest != np.arange(60)[:, None]).all()
    assert content["names"][21] == "b/21.png"
    assert content["labels"] == ["a"] * 20 + ["b"] * 20 + ["c"] * 20
    assert content["predicted"] == [""] * 60
    again = draw_map(images, features)
    assert again.tiles == drawn.tiles
    assert again.content(images) == content


def test_map__has_each_images_tile_in_its_place(images, features):
    drawn = draw_map(images, features)
    content = base64.b64decode(drawn.tiles.partition(",")[2])
    side = drawn.side
    tiles = np.array(Image.open(io.BytesIO(content)).convert("L"))
    for number in (0, 7, 8, 59):  # 8 columns
        row, column = divmod(number, 8)
        tile = tiles[row * side : (row + 1) * side, column * side : (column + 1) * side]
        assert abs(int(np.median(tile)) - 4 * number) <= 2


def test_map__has_predictions_of_some_images(images, features):
    predicted = images.with_predictions(
        [0, 59], torch.tensor([0, 1]), torch.tensor([0.834, 1.0]), ["b", "wasp"]
    )
    content = draw_map(images, features).content(predicted)
    assert content["predicted"] == ["b", *[""] * 58, "wasp"]
    assert content["percent"] == [83] + [0] * 58 + [100]


def test_map__takes_evenly_spaced_images_beyond_its_limit(images, features, monkeypatch):
    monkeypatch.setattr(image_map, "_MOST_IMAGES", 6)
    drawn = draw_map(images, features)
    assert drawn.content(images)["names"] == [
        "a/00.png", "a/10.png", "b/20.png", "b/30.png", "c/40.png", "c/50.png"
    ]  # fmt: skip


@pytest.mark.parametrize("count", [1, 2, 3, 4, 9])
@pytest.mark.parametrize("equal", [False, True])
def test_map__accepts_few_or_equal_images(count, equal, images, features):
    some = page_images(images.source, range(count), images.display)
    part = torch.ones(count, 8) if equal else features[:count]
    drawn = draw_map(some, part)
    content = drawn.content(some)
    assert len(content["x"]) == count
    assert np.isfinite(content["x"] + content["y"]).all()
    assert len(content["nearest"][0]) == min(count - 1, 6)
    assert len(drawn.near_duplicates()) == min(count * (count - 1) // 2, 24)


def test_near_duplicates__name_each_pair_once(images, features):
    changed = features.clone()
    changed[5] = changed[40]
    changed[6] = changed[41] * 3
    pairs = draw_map(images, changed).near_duplicates()
    assert {pairs[0][:2], pairs[1][:2]} == {(5, 40), (6, 41)}
    assert [similarity for _, _, similarity in pairs[:2]] == pytest.approx([1, 1])
    numbers = {frozenset(pair[:2]) for pair in pairs}
    assert len(numbers) == len(pairs) == 24  # all similarities are high
    assert len(draw_map(images, torch.eye(60)).near_duplicates()) == 6


@pytest.mark.slow
def test_map__of_5000_noisy_images_is_small():
    rng = np.random.default_rng(0)
    source = open_source([rng.integers(0, 256, (40, 40, 3), dtype=np.uint8) for _ in range(5000)])
    images = page_images(source, range(5000), choose_display(source, Reading()))
    drawn = draw_map(images, torch.randn(5000, 20))
    assert len(drawn.tiles) + len(json.dumps(drawn.content(images))) < 3_000_000
