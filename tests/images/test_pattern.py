"""One image in several files, and what a pattern says about paths."""

import numpy as np
import pytest
import tifffile
import torch
from PIL import Image
from torch.utils.data import ConcatDataset

from pirl_plugin.images.columns import Columns
from pirl_plugin.images.folders import FolderSource
from pirl_plugin.images.image_dataset import ImageDataset
from pirl_plugin.images.opening import open_source
from pirl_plugin.system.failures import Refused
from pirl_plugin.views.jigsaw import JigsawViews
from tests.helpers.images import save_gray

BANDS = r"(?P<label>[a-z]+)/(?P<group>tile\d)_.*_(?P<channel>B\w+)\.(tif|npy)"


def save_bands(folder, name, bands=("B02", "B10", "B8A"), dtype=np.uint16, size=(12, 16)):
    """Write one array per band, with the band's position plus 100 as its value."""
    for number, band in enumerate(bands):
        path = folder / f"{name}_{band}.npy"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, np.full(size, 100 + number, dtype))


@pytest.fixture
def scenes(tmp_path):
    for name in ("sea/tile1_a", "sea/tile2_a", "land/tile1_b"):
        save_bands(tmp_path, name)
    save_gray(tmp_path / "sea" / "preview.png")
    return tmp_path


def test_channels__are_one_image(scenes, caplog):
    source = FolderSource(scenes, pattern=BANDS)
    assert len(source) == 3
    assert str(source.pixel_type) == "3 channels of uint16"
    pixels, is_readable = source[1]
    assert is_readable
    assert pixels[:, 0, 0].tolist() == [100, 101, 102]
    assert source.name_of(0) == "land/tile1_b_*.npy"
    assert source.files()[:2] == [
        f"{scenes}/land/tile1_b_B02.npy",
        f"{scenes}/land/tile1_b_B10.npy",
    ]
    assert "channels B02 B10 B8A" in caplog.text
    assert "paths that do not match the pattern (1)" in caplog.text


def test_channels__are_joined_with_other_images(scenes):
    images = [
        ImageDataset(scenes, JigsawViews(), pattern=BANDS),
        [np.full((12, 16, 3), 7, np.uint16)],
    ]
    for parts in (images, images[::-1]):
        joined = open_source(ConcatDataset(parts))
        assert all(joined[row][1] for row in range(4))


def test_label_and_group__come_from_the_pattern(scenes):
    source = FolderSource(scenes, pattern=BANDS)
    assert source.classes == ["land", "sea"]
    assert source.labels().tolist() == [0, 1, 1]
    assert source.groups().tolist() == [0, 0, 2]  # tile1 has images of both classes
    images = ImageDataset(scenes, JigsawViews(), pattern=r".*/tile(?P<group>\d).*")
    assert len(torch.unique(images.groups())) == 2
    assert images.source.classes == ["land", "sea"]  # without a label, the folders
    assert ImageDataset(scenes / "sea", JigsawViews()).groups() is None


def test_channel_numbers__are_in_order(tmp_path):
    save_bands(tmp_path, "a", ("10", "9", "1"))
    assert FolderSource(tmp_path, pattern=r"a_(?P<channel>\d+)\.npy").channel_names == (
        "1",
        "9",
        "10",
    )


def test_smaller_channels__are_resized_and_logged_once(tmp_path, caplog):
    for name in ("a", "b"):
        save_bands(tmp_path, name, ["B1"], size=(6, 8))
        save_bands(tmp_path, name, ["B2", "B3"])
    np.save(tmp_path / "a_B1.npy", np.arange(48, dtype=np.uint16).reshape(6, 8))
    source = FolderSource(tmp_path, pattern=r".*_(?P<channel>B\d)\.npy")
    pixels, _ = source[0]
    assert pixels.shape == (3, 12, 16)
    assert pixels[0, 10:, 14:].tolist() == [[47, 47], [47, 47]]
    assert caplog.text.count("channels B1 are resized to the largest one") == 1


@pytest.mark.parametrize("nodata", ["-9999", "nan"])
def test_missing_pixels__are_those_that_each_file_names(tmp_path, nodata):
    for number, band in enumerate(("B1", "B2", "B3")):
        values = np.full((16, 12), 5.0 + number, np.float32)
        values[number] = float(nodata)
        if number == 2:
            values = values[::2, ::2]  # with the missing row
        tag = (42113, "s", 0, nodata, True)
        tifffile.imwrite(tmp_path / f"a_{band}.tif", values, extratags=[tag])
    pixels, is_readable = FolderSource(tmp_path, pattern=r".*_(?P<channel>B\d)\.tif")[0]
    assert is_readable
    assert (pixels == torch.tensor([5.0, 6.0, 7.0])[:, None, None]).all()


@pytest.mark.parametrize("suffix", ["png", "jpg", "tif", "bmp"])
def test_ordinary_grayscale_files__are_single_channels(tmp_path, suffix):
    for stain in ("dapi", "actin"):
        Image.new("L", (16, 12), len(stain)).save(tmp_path / f"w1_{stain}.{suffix}")
    pixels, is_readable = FolderSource(tmp_path, pattern=r".*_(?P<channel>\w+)\..*")[0]
    assert is_readable
    assert pixels[:, 0, 0].tolist() == [5, 4]


def _remove(folder):
    (folder / "sea" / "tile2_a_B10.npy").unlink()
    return "no file for channel B10"


def _change_type(folder):
    save_bands(folder, "sea/tile2_a", ["B10"], np.uint8)
    return "B02 torch.uint16, B10 torch.uint8"


def _add_channels(folder):
    np.save(folder / "sea" / "tile2_a_B10.npy", np.zeros((12, 16, 3), np.uint16))
    return "tile2_a_B10.npy has 3 channels, but should have one"


def _turn(folder):
    save_bands(folder, "sea/tile2_a", ["B10"], size=(16, 12))
    return "channel B10 has 12 × 16 pixels"


@pytest.mark.parametrize("damage", [_remove, _change_type, _add_channels, _turn])
def test_wrong_channel__makes_the_image_unreadable(scenes, caplog, damage):
    reason = damage(scenes)
    source = FolderSource(scenes, pattern=BANDS)
    assert [source[row][1] for row in range(3)] == [True, True, False]
    assert reason in caplog.text
    assert source.unreadable_paths() == [f"{scenes}/sea/tile2_a_*.npy"]


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(?P<group>", "not a regular expression"),
        (r".*\.npy", "no named group"),
        (r"(?P<plate>\w+)/.*", "unknown group plate"),
        (r"(?P<group>\d+)\.npy", "matches no path, such as"),
        (r"(?P<label>.*_(?P<channel>B\w+))\.npy", "different groups or labels"),
    ],
)
def test_wrong_pattern__is_refused(scenes, pattern, message):
    with pytest.raises(Refused, match=message):
        open_source(scenes, columns=Columns(pattern=pattern))


def test_pattern__needs_a_folder(scenes):
    for images in ([scenes], scenes / "sea" / "preview.png"):
        with pytest.raises(Refused, match=r"(`pattern`|is a file).* folder"):
            ImageDataset(images, JigsawViews(), pattern=BANDS)


@pytest.mark.parametrize(
    "bands", [("B02", "B8A"), ("B02", "B03", "B04"), ("B02", "B03", "B04", "B8A")]
)
def test_missing_pixels__stay_missing_in_each_channel(tmp_path, bands):
    """Three bands in uint8 are no photo, whose black pixels would count."""
    tifffile = pytest.importorskip("tifffile", reason="needs pip install pirl-plugin[tiff]")
    for image in range(2):
        for number, band in enumerate(bands):
            array = np.full((12, 16), 100 + number, np.uint8)
            array[number] = 0  # another line in each channel
            value = 9 if image == 1 and number == 1 else 0
            tag = (42113, "s", 0, str(value), True)
            tifffile.imwrite(tmp_path / f"{image}_{band}.tif", array, extratags=[tag])
    source = FolderSource(tmp_path, pattern=r"\d_(?P<channel>B\w+)\.tif")
    levels = [round(255 * mean) for mean in source.statistics().mean]
    for row in range(2):
        pixels, is_readable = source[row]
        assert is_readable
        for number in range(len(bands)):
            line = 0 if row == 1 and number == 1 else levels[number]
            assert pixels[number, number].unique().tolist() == [line]
            assert pixels[number, number + 1].unique().tolist() == [100 + number]
