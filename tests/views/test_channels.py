"""Views for any number of channels in three dtypes, compared with slow references."""

import numpy as np
import pytest
import torch
from PIL import Image

from pirl_plugin.views.base import ImageViews
from pirl_plugin.views.jigsaw import JigsawTask, JigsawViews, RotationJigsawViews
from pirl_plugin.views.kernels import render
from pirl_plugin.views.photometric import Photometric
from pirl_plugin.views.pixels import (
    image_generator,
    random_resized_crop,
    random_resized_crop_box,
)
from pirl_plugin.views.rotation import RotationTask, RotationViews

TYPES = [np.uint8, np.uint16, np.float32]
PLAIN = {"flip_p": 0}
JITTER = {"channel_jitter_p": 1}
STRONGER = {**JITTER, "brightness": 0.5, "contrast": 0.7}


def bands(channels, dtype, height=70, width=90, seed=0):
    """Return pictures (C, H, W) that span their dtype's range, with negative values for floats."""
    rng = np.random.default_rng(seed)
    coarse = rng.random((channels, 5, 6)).astype(np.float32)
    resized = [np.array(Image.fromarray(c).resize((width, height), 2)) for c in coarse]
    values = np.stack(resized)
    if dtype == np.float32:
        return torch.from_numpy(values * 1e3 - 300)
    return torch.from_numpy((values * np.iinfo(dtype).max).astype(dtype))


def slow_views(canvas, corners, rows, size):
    """Compute the views in float64 by looping over views and channels."""
    views = np.empty((len(rows), canvas.shape[2], size, size), canvas.dtype)
    for v, ((top, left), row) in enumerate(zip(corners.tolist(), rows, strict=True)):
        for c in range(canvas.shape[2]):
            view = canvas[top : top + size, left : left + size, c].astype(np.float64)
            view = view[:, ::-1] if row["flip"] else view
            view = view * row["brightness"][c]
            mean = view.mean()
            view = mean + row["contrast"][c] * (view - mean)
            if canvas.dtype != np.float32:
                view = np.rint(view).clip(0, np.iinfo(canvas.dtype).max)
            views[v, c] = view
    return views


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("channels", [1, 3, 30])
def test_crop__matches_pil_per_channel(channels, dtype):
    pixels = bands(channels, dtype)
    canvas = random_resized_crop(pixels, (0.2, 0.8), 24, np.random.default_rng(0))
    top, left, height, width = random_resized_crop_box(70, 90, (0.2, 0.8), np.random.default_rng(0))
    assert canvas.dtype == dtype
    for c in range(channels):
        crop = pixels[c, top : top + height, left : left + width].numpy().astype(np.float32)
        expected = np.array(Image.fromarray(crop).resize((24, 24), Image.Resampling.BILINEAR))
        # Torch resizes bytes with 15-bit weights, off by one level at most. Rounding moves uint16
        # by half a level, and float32 differs between the libraries in the seventh digit.
        tolerance = {np.uint8: 1, np.uint16: 0.55, np.float32: 1e-3}[dtype]
        np.testing.assert_allclose(canvas[:, :, c], expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    "options", [PLAIN, {**JITTER, "flip_p": 1}, STRONGER, {**JITTER, "brightness": 3.0}]
)
@pytest.mark.parametrize("channels", [1, 2, 7])
def test_kernel__matches_loop_over_views_and_channels(channels, options, dtype):
    canvas = np.ascontiguousarray(bands(channels, dtype).permute(1, 2, 0).numpy())
    rows = Photometric(**options).sample(np.random.default_rng(1), 9, canvas)
    corners = np.random.default_rng(2).integers(0, 40, (9, 2), dtype=np.int32)
    found = render(canvas, corners, rows, 30).numpy().astype(np.float64)
    expected = slow_views(canvas, corners, rows, 30).astype(np.float64)
    scale = np.abs(expected).max()
    off_by_one = (found != expected).mean()
    if dtype == np.float32 or options is PLAIN:
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6 * scale)
    else:  # float32 may round differently than float64
        assert np.abs(found - expected).max() <= 1
        assert off_by_one < (0.02 if dtype == np.uint16 else 1e-3)


def test_sample__draws_per_channel():
    canvas = np.zeros((2, 2, 3), np.uint16)  # three channels are not RGB in this dtype
    rows = Photometric(channel_jitter_p=0.8).sample(np.random.default_rng(0), 20_000, canvas)
    off = (rows["brightness"] == 1).all(axis=1)
    assert abs(off.mean() - 0.2) < 0.012  # 4 standard errors
    assert (rows["contrast"][off] == 1).all()
    for name in ("brightness", "contrast"):
        drawn = rows[name][~off]
        np.testing.assert_allclose(np.quantile(drawn, [0, 0.5, 1]), [0.6, 1, 1.4], atol=0.01)
        assert np.abs(np.corrcoef(drawn.T) - np.eye(3)).max() < 0.035
    assert abs(rows["flip"].mean() - 0.5) < 0.015


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("channels", [1, 2, 4, 7, 30])
def test_views__keep_channels_and_dtype(channels, dtype):
    image = bands(channels, dtype)
    for views in (
        JigsawViews(32), RotationViews(32), RotationJigsawViews(32), ImageViews(32),
        RotationTask(32), JigsawTask(20, image_size=32), JigsawViews(32, flip="image"),
    ):  # fmt: skip
        one, same, other = (views(image, image_generator(0, e, 1)) for e in (1, 1, 2))
        for name in one.keys() - {"label"}:
            assert one[name].dtype == image.dtype
            assert one[name].shape[-3] == channels
            assert torch.equal(one[name], same[name])
            assert not torch.equal(one[name], other[name])


@pytest.mark.parametrize("dtype", TYPES)
def test_rotated_jigsaw__moves_pixels_unchanged(dtype):
    """Every channel holds the pixel's number, so a single wrong byte would show."""
    options = {"patches_crop_size": 12, "patch_size": 4, "patches_scale": (1, 1), **PLAIN}
    views = RotationJigsawViews(8, num_permutations=1, **options)
    numbers = np.arange(144, dtype=dtype).reshape(12, 12, 1).repeat(5, axis=2)
    cells = views.permutations.orders[0].tolist()
    seen = set()
    for row in range(12):
        patches = views(numbers, image_generator(0, 0, row))["patches"]
        for quarters in range(4):
            turned = np.rot90(numbers, quarters)
            cut = [turned[4 * (c // 3) :, 4 * (c % 3) :][:4, :4].transpose(2, 0, 1) for c in cells]
            if np.array_equal(np.stack(cut), patches.numpy()):
                seen.add(quarters)
    assert seen == {0, 1, 2, 3}
