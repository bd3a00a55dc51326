"""The figures of the report."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from pirl_plugin.quickstart.page.figures import feature_map, patch_grid, png_uri
from pirl_plugin.quickstart.page.plots import cosines_svg, loss_curve_svg, smoothed
from tests.helpers.report_pages import Page, picture, written


def test_write_report__final_loss_is_the_smoothed_one_and_a_rise_is_explained(tmp_path):
    steps = range(300)
    curve = [(i, 4 + 2 * (i % 2) + (3 if 50 < i < 100 else 0)) for i in steps]  # 4, 6, 4, 6, …
    page = Page(written(tmp_path, loss_curve=curve, num_negatives=147))
    assert "from 4.00 to 5.0" in page.text  # and not to 6.00, the last one logged
    assert "It first rises, to 8.0" in page.text
    assert "The dashed line, 5.00, is the loss at chance" in page.text  # log 148
    falling = Page(written(tmp_path, loss_curve=[(i, 7 - i / 100) for i in steps]))
    assert "It first rises" not in falling.text
    assert "dashed" not in falling.text


@pytest.mark.parametrize("size", ["wide", "narrow"])
@pytest.mark.parametrize("points", [1, 2, 61, 5000])
def test_loss_curve_svg__any_length(points, size):
    curve = [(i, 7 / (i + 1)) for i in range(points)]
    svg = loss_curve_svg(curve, size, level=1.5)
    assert svg.startswith("<svg")
    assert f'class="{size}"' in svg
    assert "log(N + 1) = 1.50" in svg
    assert "var(--accent)" in svg
    assert "var(--ink)" in svg
    assert svg == loss_curve_svg(curve, size, level=1.5)


def test_cosines_svg__has_a_panel_for_each_network():
    svg = cosines_svg({"Before": ([0.0], [0.1]), "After": ([0.9], [-0.9])}, "narrow")
    assert "Before" in svg
    assert "After" in svg


def test_smoothed__is_the_mean_of_neighbours_that_are_finite():
    values = np.array([1.0, np.nan, 3.0, 5.0])
    np.testing.assert_allclose(smoothed(values), [1.0, 2.0, 4.0, 4.0])


def test_feature_map__puts_like_features_near_each_other_and_hides_none():
    rng = np.random.default_rng(0)
    centres = np.repeat(np.eye(2, 16), 12, axis=0)
    features = centres + 0.01 * rng.standard_normal((24, 16))
    thumbnails = [picture(10 + i, 8) for i in range(24)]
    canvas = feature_map(features, thumbnails, [0] * 12 + [1] * 12, seed=0)
    places = [np.argwhere((canvas[..., 3] == 255) & (canvas[..., 0] == 10 + i)) for i in range(24)]
    assert all(len(place) >= 64 for place in places)  # each of the 64 pixels of each is seen
    middles = np.array([np.median(place, axis=0) for place in places])
    first, second = middles[:12], middles[12:]
    within = np.linalg.norm(first - first.mean(axis=0), axis=1).max()
    assert np.linalg.norm(first.mean(axis=0) - second.mean(axis=0)) > within / 2
    assert canvas.shape[0] % 14 == canvas.shape[1] % 14 == 0  # 8 px and a frame of 3 on each side


def test_patch_grid__places_patches_in_reading_order():
    grid = patch_grid([picture(10 * i, 4) for i in range(9)])
    assert grid.shape == (14, 14, 4)  # three patches of 4 and two gaps of 1
    assert grid[::5, ::5, 0].tolist() == [[0, 10, 20], [30, 40, 50], [60, 70, 80]]
    assert grid[4, :, 3].max() == 0  # the gap is clear
    assert grid[0, 0, 3] == 255


def test_png_uri__round_trip():
    photo = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    data = base64.b64decode(png_uri(photo).removeprefix("data:image/png;base64,"))
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(data))), photo)
