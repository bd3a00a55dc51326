"""Missing pixels: NaN, the value that a TIFF names, or the user's."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Subset

import pirl_plugin as pirl
from pirl_plugin.images.image_dataset import ImageDataset
from pirl_plugin.images.opening import open_source
from pirl_plugin.images.reading import Reading

VIEWS = pirl.ImageViews(image_size=16)
COUNT = 6
LOWEST = float(np.finfo(np.float64).min)


def complete(dtype, channels=4):
    """Return arrays (H, W, C), and which values will be missing."""
    rng = np.random.default_rng(0)
    values = rng.integers(20, 200, (COUNT, 24, 20, channels)).astype(dtype)
    missing = rng.random(values.shape) < 0.3
    missing[1] = False
    missing[2, ..., 0] = True  # an entire channel
    return values, missing


def with_missing(dtype, value, channels=4):
    values, missing = complete(dtype, channels)
    return list(np.where(missing, np.array(value, dtype), values)), values, missing


def write_tiffs(folder, arrays, text):
    tifffile = pytest.importorskip("tifffile", reason="needs pip install pirl-plugin[tiff]")
    for number, array in enumerate(arrays):
        options = {"photometric": "minisblack", "planarconfig": "contig"}
        tag = (42113, "s", 0, text, True)
        tifffile.imwrite(folder / f"{number}.tif", array, extratags=[tag], **options)
    return folder


CASES = {
    "NaN": (np.float32, np.nan, None),
    "NaN in halves": (np.float16, np.nan, None),
    "value": (np.float32, -9999, -9999),
    "lowest": (np.float64, LOWEST, LOWEST),
    "int16": (np.int16, -9999, -9999),
    "uint16": (np.uint16, 0, 0),
    "uint8": (np.uint8, 255, 255),
    "infinity": (np.float32, np.inf, np.inf),
}


@pytest.mark.parametrize("held", ["arrays", "TIFFs"])
@pytest.mark.parametrize("case", CASES)
def test_missing_values__count_in_no_statistic_and_become_the_mean(case, held, tmp_path):
    dtype, value, nodata = CASES[case]
    arrays, values, missing = with_missing(dtype, value)
    images = arrays
    if held == "TIFFs":
        images = write_tiffs(tmp_path, arrays, str(value))
        nodata = None  # the files name it
    data = ImageDataset(images, VIEWS, nodata=nodata)
    white = 255 if dtype == np.uint8 else 1
    valid = np.where(missing, np.nan, values.astype(float) / white)
    mean, _, low, high = data.source.statistics(data.reading)
    axes = (0, 1, 2)
    np.testing.assert_allclose(mean, np.nanmean(valid, axes), rtol=1e-6)  # of equally large images
    np.testing.assert_allclose([low, high], [np.nanmin(valid, axes), np.nanmax(valid, axes)])
    for row in range(COUNT):
        pixels, is_readable = data.source.load(row, 16, data.reading)
        assert is_readable
        levels = np.array(mean) * white
        if np.dtype(dtype).kind in "u":
            levels = levels.round()
        expected = np.where(missing[row], levels, values[row].astype(np.float32))
        np.testing.assert_allclose(pixels.permute(1, 2, 0), expected, rtol=1e-6)
        assert not np.isnan(data[row]["images"].numpy()).any()


def test_rgb_photos__have_missing_pixels_only_on_request(tmp_path):
    arrays, values, missing = with_missing(np.uint8, 0, channels=3)
    write_tiffs(tmp_path, [np.ascontiguousarray(array) for array in arrays], "0")
    for images in (tmp_path, arrays):
        untouched = ImageDataset(images, VIEWS)
        pixels, _ = untouched.source.load(0, 16, untouched.reading)
        np.testing.assert_array_equal(pixels.permute(1, 2, 0), arrays[0])
        data = ImageDataset(images, VIEWS, nodata=0)
        pixels, _ = data.source.load(0, 16, data.reading)
        expected = np.where(missing[0], [124, 116, 104], values[0])  # ImageNet's mean
        np.testing.assert_array_equal(pixels.permute(1, 2, 0), expected)


def test_images_without_valid_pixel__and_infinite_ones_are_unreadable(caplog):
    arrays, _, _ = with_missing(np.float32, -9999)
    arrays[3] = np.full_like(arrays[3], -9999)
    arrays[4] = np.full_like(arrays[4], np.nan)
    arrays[5] = arrays[5].copy()
    arrays[5][2, 3, 1] = -np.inf
    data = ImageDataset(arrays, VIEWS, nodata=-9999)
    assert [bool(data[row]["data_valid"]) for row in range(COUNT)] == [True] * 3 + [False] * 3
    assert caplog.text.count("it has no valid pixel") == 2
    assert "it has infinite values" in caplog.text


def test_conversion_to_rgb__keeps_missing_pixels_missing():
    arrays, values, missing = with_missing(np.uint16, 0, channels=1)
    data = ImageDataset(arrays, VIEWS, rgb=True, nodata=0)
    pixels, _ = data.source.load(0, 16, data.reading)
    expected = np.where(missing[0], [124, 116, 104], np.round(values[0] / 257))
    np.testing.assert_array_equal(pixels.permute(1, 2, 0), expected)


def test_missing_pixels__keep_the_users_own_array():
    tensor = torch.full((2, 24, 20), 5.0)
    tensor[0, 3] = torch.nan
    before = tensor.clone()
    assert open_source([tensor] * 2)[0][1]
    torch.testing.assert_close(tensor, before, equal_nan=True)


def test_value__follows_the_data_and_the_record(tmp_path):
    arrays, _, _ = with_missing(np.float32, -9999)
    data = ImageDataset(arrays, VIEWS, nodata=-9999)
    trunk = pirl.WideResNet(10, 0.125, in_channels=4)
    pirl.PIRL(trunk, data)
    mean = data.source.statistics(data.reading).mean
    assert data.reading == Reading(data.pixel_type, False, -9999, mean)
    pirl.save_trunk(trunk, tmp_path / "trunk.torch")
    loaded = pirl.load_trunk(tmp_path / "trunk.torch")
    record = loaded.network_config
    assert (record.nodata, record.mean, record.statistics) == (-9999, mean, "measured")
    assert (record.low, record.high) == data.source.statistics(data.reading)[2:]
    assert "nodata -9999 (file)" in str(record)
    expected, _ = pirl.extract_features(trunk.eval(), arrays, size=16, nodata=-9999)
    subset = Subset(data, range(COUNT))
    for network, images in ((loaded, arrays), (loaded, data), (trunk, subset)):
        features, _ = pirl.extract_features(network, images, size=16)
        torch.testing.assert_close(features, expected)
    # A data set without the value reads as the weights record it.
    later = ImageDataset(arrays, VIEWS)
    pirl.PIRL(loaded, later)
    assert later.reading.nodata == -9999
    assert later.reading.mean == mean


def test_workers__replace_missing_pixels_alike():
    arrays, _, _ = with_missing(np.float32, np.nan)
    data = ImageDataset(arrays, VIEWS)
    batches = []
    for workers in (0, 2):
        data.set_epoch(0)
        loader = DataLoader(data, 3, num_workers=workers, collate_fn=pirl.collate_views)
        batches.append(torch.cat([batch["images"] for batch in loader]))
    assert torch.equal(*batches)
