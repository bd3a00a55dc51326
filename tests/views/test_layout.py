"""Which axis of an array holds the channels, and which types are read."""

import numpy as np
import pytest
import torch

from pirl_plugin.system.console import warn_once
from pirl_plugin.views.layout import CHANNELS_LAST, PAGES_FIRST, channels_first
from pirl_plugin.views.pixels import as_pixels


@pytest.fixture(autouse=True)
def _each_test_warns():
    warn_once.cache_clear()


@pytest.mark.parametrize(
    ("shape", "usual", "channels", "note"),
    [
        ((60, 40), CHANNELS_LAST, (1, 60, 40), ""),
        ((60, 40, 13), CHANNELS_LAST, (13, 60, 40), ""),
        ((13, 60, 40), PAGES_FIRST, (13, 60, 40), ""),
        ((13, 60, 40), CHANNELS_LAST, (13, 60, 40), "axes C, H, W"),
        ((60, 40, 13), PAGES_FIRST, (13, 60, 40), "axes H, W, C"),
        ((1, 60, 40), CHANNELS_LAST, (1, 60, 40), ""),
        ((60, 40, 1), PAGES_FIRST, (1, 60, 40), ""),
        ((2, 2, 3), CHANNELS_LAST, (3, 2, 2), ""),  # a tiny photo
        ((2, 60, 4), CHANNELS_LAST, (4, 2, 60), ""),
        ((4, 12, 3), PAGES_FIRST, (4, 12, 3), ""),
        ((1, 1, 13, 60, 40), PAGES_FIRST, (13, 60, 40), ""),
    ],
)
def test_unnamed_axes__are_told_by_place_and_length(shape, usual, channels, note, caplog):
    array = np.arange(np.prod(shape)).reshape(shape)
    for _ in range(2):
        assert channels_first(array, usual=usual).shape == channels
    assert [note in message for message in caplog.messages] == [True] * bool(note)


@pytest.mark.parametrize(
    "shape", [(200, 64, 64), (64, 64, 200), (48, 48, 48), (60, 8, 13), (13, 13, 60)]
)
@pytest.mark.parametrize("usual", [CHANNELS_LAST, PAGES_FIRST])
def test_ambiguous_axes__are_refused_with_both_readings(shape, usual):
    first, middle, last = shape
    readings = f"{last} channels of {first} × {middle} px, or {first} channels of {middle} × {last}"
    with pytest.raises(ValueError, match=readings):
        channels_first(np.zeros(shape), usual=usual)


@pytest.mark.parametrize(
    ("axes", "shape", "channels", "note"),
    [
        ("YX", (5, 6), (1, 5, 6), ""),
        ("YXS", (5, 6, 70), (70, 5, 6), ""),
        ("CYX", (70, 5, 6), (70, 5, 6), ""),
        ("YXC", (5, 6, 70), (70, 5, 6), ""),
        ("ZYX", (8, 5, 6), (8, 5, 6), "Z serves as channels"),
        ("TZCYX", (8, 1, 1, 5, 6), (8, 5, 6), "T serves as channels"),
        ("TCZYX", (1, 1, 1, 5, 6), (1, 5, 6), ""),
    ],
)
def test_named_axes__are_used(axes, shape, channels, note, caplog):
    array = np.arange(np.prod(shape)).reshape(shape)
    found = channels_first(array, axes)
    assert found.shape == channels
    np.testing.assert_array_equal(
        found[:, 2, 3], array.take(3, axes.index("X")).take(2, axes.index("Y")).ravel()
    )
    assert [note in message for message in caplog.messages] == [True] * bool(note)


@pytest.mark.parametrize("axes", ["ZCYX", "TZYX", "TYXS", "IYXS"])
def test_two_other_axes__are_refused(axes):
    with pytest.raises(ValueError, match=r"axes.*\. Save one plane per file, or a projection"):
        channels_first(np.zeros((2, 3, 40, 50))[..., :4], axes)


EXACT = [np.int8, np.int16, np.float16, np.bool_]
ROUNDED = [np.int32, np.uint32, np.int64, np.uint64, np.float64, np.longdouble]


@pytest.mark.parametrize("dtype", [*EXACT, *ROUNDED])
@pytest.mark.parametrize("make", [np.asarray, torch.from_numpy])
def test_other_types__become_float32(make, dtype, caplog):
    if make is torch.from_numpy and dtype is np.longdouble:
        pytest.skip("torch has no such type")
    values = (np.random.default_rng(0).standard_normal((40, 50)) * 300).astype(dtype)
    for _ in range(2):
        pixels = as_pixels(make(values))
        assert pixels.dtype == torch.float32
        np.testing.assert_array_equal(pixels[0], values.astype(np.float32))
    name = np.dtype(dtype).name
    expected = [f"Some images have {name} values, which are rounded to float32."]
    assert caplog.messages == (expected if dtype in ROUNDED else [])


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128, object])
def test_types_without_real_values__are_refused(dtype):
    with pytest.raises(ValueError, match=f"has {np.dtype(dtype).name} values"):
        as_pixels(np.zeros((4, 5), dtype))
