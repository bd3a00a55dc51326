"""Fused kernel compared with PIL, per operation and as a chain; distributions of the draws."""

import itertools
import zlib
from dataclasses import fields

import numpy as np
import pytest
import torch
from PIL import Image

from pirl_plugin.views.kernels import render as render_fused
from pirl_plugin.views.photometric import Photometric
from tests.views.oracle import render_pil

OFF = {
    "brightness": 0.0, "contrast": 0.0, "saturation": 0.0, "hue": 0.0,
    "photometric_p": 0.0, "grayscale_p": 0.0, "flip_p": 0.0,
}  # fmt: skip
OPERATIONS = {
    "nothing": {},
    "brightness": {"brightness": 1.0},
    "contrast": {"contrast": 1.0},
    "saturation": {"saturation": 1.0},
    "hue": {"hue": 0.5},
    "jitter": {"brightness": 0.8, "contrast": 0.8, "saturation": 0.8, "hue": 0.5},
    "extras": {"photometric_p": 1.0},
    "equalize": {"equalize_p": 1.0},
    "grayscale": {"grayscale_p": 1.0},
    "blur": {"blur_p": 1.0},
    "strong_blur": {"blur_p": 1.0, "blur_sigma": (3.0, 9.0)},
    "flip": {"flip_p": 1.0},
}


def canvases():
    """Return pictures as varied as photos: smooth areas, edges, noise, grays, clipped ends."""
    rng = np.random.default_rng(0)
    coarse = Image.fromarray(rng.integers(0, 256, (7, 9, 3), dtype=np.uint8))
    smooth = np.array(coarse.resize((90, 80), Image.Resampling.BICUBIC))
    noise = rng.integers(0, 256, (80, 90, 3), dtype=np.uint8)
    narrow = (smooth // 4 + 90).astype(np.uint8)
    clipped = np.clip(smooth.astype(int) * 3 - 250, 0, 255).astype(np.uint8)
    flat = np.full((80, 90, 3), (200, 30, 77), np.uint8)
    gray = np.repeat(smooth[..., :1], 3, axis=2)
    return {"smooth": smooth, "noise": noise, "narrow": narrow, "clipped": clipped, "flat": flat,
            "gray": gray}  # fmt: skip


CANVASES = canvases()
RGB = CANVASES["smooth"]
CHECKSUMS = {
    "flip": 4001277502,
    "grayscale": 1484802608,
    "order": 3310099223,
    "brightness": 404020871,
    "contrast": 2607974466,
    "saturation": 1319669913,
    "hue": 107906259,
    "extras": 362119051,
    "posterize": 2282069990,
    "sharpness": 1176225886,
    "solarize": 3771507054,
    "equalize": 2981177507,
    "blur": 2313742842,
}


def both(canvas, parameters, size, count=24, seed=0):
    rng = np.random.default_rng(seed)
    rows = Photometric(**parameters).sample(rng, count, canvas)
    corners = np.stack(
        [rng.integers(0, side - size + 1, count) for side in canvas.shape[:2]], axis=1
    ).astype(np.int32)
    args = (canvas, corners, rows, size)
    return render_fused(*args).numpy(), render_pil(*args).numpy()


@pytest.mark.parametrize("operation", OPERATIONS)
def test_kernel__matches_pil_per_operation(operation):
    for name, canvas in CANVASES.items():
        fused, oracle = both(canvas, OFF | OPERATIONS[operation], 33)
        np.testing.assert_array_equal(fused, oracle, err_msg=name)


@pytest.mark.parametrize("size", [1, 2, 3, 17, 64])
def test_kernel__matches_pil_for_full_chain(size):
    chain = {"equalize_p": 0.3, "blur_p": 0.3, "hue": 0.5}
    for name, canvas in CANVASES.items():
        fused, oracle = both(canvas, chain, size, count=40, seed=size)
        np.testing.assert_array_equal(fused, oracle, err_msg=name)


def test_kernel__matches_pil_hue_on_color_grid():
    values = np.arange(0, 256, 3, dtype=np.uint8)  # 86³ colors, ends included
    colors = np.stack(np.meshgrid(values, values, values), axis=-1).reshape(-1, 3)
    side = int(np.sqrt(len(colors)))
    canvas = colors[: side * side].reshape(side, side, 3)
    rows = Photometric(**OFF).sample(np.random.default_rng(0), 3, RGB)
    rows["hue"] = (1e-4, -0.2, 0.37)
    args = (canvas, np.zeros((3, 2), np.int32), rows, side)
    np.testing.assert_array_equal(render_fused(*args), render_pil(*args))


def test_kernel__matches_pil_at_range_ends():
    rows = Photometric(**OFF | {"photometric_p": 1.0}).sample(np.random.default_rng(0), 1, RGB)
    for threshold, bits in itertools.product([0, 1, 128, 255, 256], [4, 8]):
        rows["solarize"] = threshold
        rows["posterize"] = bits
        for name, canvas in CANVASES.items():
            args = (canvas, np.zeros((1, 2), np.int32), rows, 64)
            np.testing.assert_array_equal(
                render_fused(*args), render_pil(*args), err_msg=f"{name}, {threshold}, {bits}"
            )


def test_sample__has_documented_distributions():
    sample = Photometric(equalize_p=0.1, blur_p=0.5).sample(np.random.default_rng(0), 20_000, RGB)
    for name, chance in (("flip", 0.5), ("grayscale", 0.2), ("extras", 0.66), ("equalize", 0.1)):
        assert set(np.unique(sample[name])) == {0, 1}
        assert abs(sample[name].mean() - chance) < 0.015  # 4 standard errors at most
    for name, low, high in (
        ("brightness", 0.6, 1.4), ("contrast", 0.6, 1.4), ("saturation", 0.6, 1.4),
        ("hue", -0.2, 0.2), ("sharpness", 0.1, 1.9), ("blur", 0.1, 2.0),
    ):  # fmt: skip
        drawn = sample[name]
        drawn = drawn[drawn > 0] if name == "blur" else drawn
        assert low - 1e-6 <= drawn.min() < low + 0.01 * (high - low)
        assert high - 0.01 * (high - low) < drawn.max() <= high + 1e-6
        quartiles = (np.quantile(drawn, [0.25, 0.5, 0.75]) - low) / (high - low)
        np.testing.assert_allclose(quartiles, [0.25, 0.5, 0.75], atol=0.02)
    assert np.isclose((sample["blur"] > 0).mean(), 0.5, atol=0.015)
    assert set(np.unique(sample["posterize"])) == {4, 5, 6, 7, 8}
    assert set(np.unique(sample["solarize"])) == set(range(257))
    orders, counts = np.unique(sample["order"], axis=0, return_counts=True)
    assert len(orders) == 24
    assert ((counts - 20_000 / 24) ** 2 / (20_000 / 24)).sum() < 60  # 0.01 % point, 23 d.o.f.


def test_sample__draws_independent_parameters():
    options = {field.name: 0.5 for field in fields(Photometric) if field.name.endswith("_p")}
    sample = Photometric(**options).sample(np.random.default_rng(1), 20_000, RGB)
    varied = [name for name in sample.dtype.names if name != "order" and np.ptp(sample[name])]
    correlation = np.corrcoef([sample[name] for name in varied]) - np.eye(len(varied))
    assert np.abs(correlation).max() < 0.035


def test_option__changes_views(subtests):
    """An option that is accepted, but not implemented, would go unnoticed."""
    options = {field.name: 0.5 for field in fields(Photometric) if field.name.endswith("_p")}

    def views(canvas, **changed):
        rows = Photometric(**options | changed).sample(np.random.default_rng(0), 40, canvas)
        return render_fused(canvas, np.zeros((40, 2), np.int32), rows, 16)

    canvases = [RGB, RGB.astype(np.uint16)]
    unchanged = [views(canvas) for canvas in canvases]
    for field in fields(Photometric):
        value = (3.0, 9.0) if field.name == "blur_sigma" else 0.25
        with subtests.test(option=field.name):
            changed = [views(canvas, **{field.name: value}) for canvas in canvases]
            assert not all(map(torch.equal, changed, unchanged))


def test_sample__consumes_same_draws_for_any_options():
    first, second = np.random.default_rng(0), np.random.default_rng(0)
    Photometric().sample(first, 3, RGB)
    Photometric(blur_p=1.0, jitter_p=0.1, hue=0.0).sample(second, 3, RGB)
    assert first.random() == second.random()


def test_sample__matches_earlier_versions():
    """A new option that shifts other options' draws would change the views for every seed."""
    sample = Photometric(equalize_p=0.5, blur_p=0.5).sample(np.random.default_rng(7), 40, RGB)
    checksums = {name: zlib.crc32(sample[name].astype("<f4").tobytes()) for name in CHECKSUMS}
    assert checksums == CHECKSUMS


def test_sample__jitter_p_switches_all_four_together():
    sample = Photometric(jitter_p=0.8).sample(np.random.default_rng(0), 10_000, RGB)
    factors = np.stack([sample[name] for name in ("brightness", "contrast", "saturation")])
    off = (factors == 1).all(axis=0) & (sample["hue"] == 0)
    assert abs(off.mean() - 0.2) < 0.016
    assert (sample["hue"][~off] != 0).all()


def test_photometric__refuses_out_of_range_values(subtests):
    for name, value, words in (
        ("brightness", -0.1, r"brightness = -0.1: expected a number in \[0, inf\]; "),
        ("hue", 0.6, r"hue = 0.6: expected a number in \[0, 0.5\]; "),
        ("photometric_p", 1.1, r"photometric_p = 1.1: expected a number in \[0, 1\]; "),
        ("flip_p", float("nan"), "flip_p = nan:"),
        ("contrast", float("inf"), "contrast = inf:"),
        ("blur_sigma", (2.0, 0.1), r"blur_sigma = \(2.0, 0.1\): expected two standard deviations"),
        ("blur_sigma", (0.0, 1.0), "blur_sigma = "),
    ):
        with subtests.test(name=name, value=value), pytest.raises(ValueError, match=words):
            Photometric(**{name: value})
