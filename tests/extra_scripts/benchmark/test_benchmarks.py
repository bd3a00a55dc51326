"""Run the benchmarks at tiny sizes: keys in their results, and what they time."""

import functools
import importlib.util
import json
import time

import loss
import pipeline
import pytest
import startup
import step
import torch
from timing import interleave, peak_extra_bytes, ratio, seconds_between

from pirl_plugin.method.estimators import ESTIMATORS


@pytest.fixture
def figures(tmp_path):
    def run(benchmark, *arguments):
        file = tmp_path / "new" / "figures.json"
        benchmark.main([*map(str, arguments), "--json", str(file)])
        return json.loads(file.read_text())

    return run


@pytest.mark.slow
def test_pipeline__has_one_row_per_pipeline(figures):
    counts = ["--images", "4", "--rounds", "2", "--device", "cpu"]
    found = figures(pipeline, *counts)  # generated images: lightly's pipeline needs 64 px
    assert found["machine"]["torch"]
    rows = {(row["transform"], row["pipeline"]): row for row in found["rows"]}
    ours = ("fused", "normalised", "decode")
    lightly = ["lightly"] if importlib.util.find_spec("lightly") else []
    assert set(rows) == {
        *(("jigsaw", name) for name in (*ours, "vissl", "vissl_filelist")),
        *(("rotation", name) for name in ours),
        *(("rotation_jigsaw", name) for name in ours),
        *(("jigsaw_64", name) for name in (*ours, *lightly)),
    }
    for (transform, name), row in rows.items():
        assert 0 < row["ms_min"] <= row["ms_median"]
        assert row["images_per_s_per_core"] == pytest.approx(1e3 / row["ms_median"])
        assert row["decode_share"] == 1 if name == "decode" else row["decode_share"] > 0
        assert (row["ratio_to_vissl"] is None) == (transform != "jigsaw")
        assert (row["ratio_to_lightly"] is None) == (transform != "jigsaw_64" or not lightly)
    assert rows["jigsaw", "vissl"]["ratio_to_vissl"] == 1
    assert rows["jigsaw", "vissl_filelist"]["ratio_to_filelist"] == 1


@pytest.mark.parametrize("vissl", [True, False], ids=["with_vissl", "alone"])
def test_loss__has_one_row_per_case(vissl, figures, monkeypatch):
    find_spec = importlib.util.find_spec
    if not vissl:
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda name: None if name == "vissl" else find_spec(name)
        )
    sizes = ["--rows", "500", "--batch", "1", "4", "--negatives", "16", "--rounds", "1"]
    found = figures(loss, "--device", "cpu", *sizes)
    cases = {(row["estimator"], row["batch"]) for row in found["rows"]}
    assert len(cases) == len(found["rows"]) == len(found["shared_draw"]) == 2 * len(ESTIMATORS)
    assert all(row["negatives"] == 16 and row["seconds_min"] > 0 for row in found["rows"])
    assert {row["batch"] for row in found["vissl"]} == ({4} if vissl else set())
    for row in found["rows"]:  # VISSL's loss squeezes away a batch of one image
        assert (row["speedup_over_vissl"] is not None) == (vissl and row["batch"] > 1)
    assert all(row["speedup_over_vissl"] == 1 for row in found["vissl"])


@pytest.mark.slow
def test_step__has_one_row_per_precision_and_batch(image_folder, figures):
    sizes = ["--depth", "18", "--images", "2", "--batch", "2", "3", "--negatives", "64"]
    more = ["--rows", "500", "--steps", "1", "--precision", "float32", "--device", "cpu"]
    found = figures(step, "--data", image_folder / "train", *sizes, *more)
    assert [(r["precision"], r["batch"]) for r in found["rows"]] == [("float32", b) for b in (2, 3)]
    for row in found["rows"]:
        shares = {k: v for k, v in row.items() if k.endswith("_share") and k != "plugin_share"}
        assert sum(shares.values()) == pytest.approx(1)
        ours = shares["normalise_share"] + shares["loss_share"] + shares["bank_share"]
        assert row["plugin_share"] == pytest.approx(ours)
        assert row["images_per_s"] == pytest.approx(1e3 * row["batch"] / row["ms_median"])
        assert row["workers_needed"] >= row["images_per_s"] / found["input_images_per_s"]
        assert row["peak_gb"] is None


@pytest.mark.slow
def test_startup__has_one_row_per_part(figures, monkeypatch):
    monkeypatch.setattr(startup, "_MODEL", 2_000_000)
    found = figures(startup, "--rows", "2000", "--rounds", "1")
    rows = {row["what"]: row for row in found["rows"]}
    compared = [
        "loss of 2,000 rows",
        "saving a checkpoint of 3 MB (model and bank)",
        "loading a checkpoint of 3 MB (model and bank)",
    ]
    assert list(rows)[-3:] == compared
    assert all(rows[what]["speedup_over_vissl"] > 0 for what in compared)
    assert rows["import vissl.engines"]["speedup_over_vissl"] is None  # nothing to compare with


def test_timing__alternates_calls_and_measures():
    calls = []
    takes = {"slow": 4, "quick": 1}

    def clock():
        return sum(takes[name] for name in calls)

    functions = {name: functools.partial(calls.append, name) for name in takes}
    seconds = interleave(functions, rounds=3, clock=clock)
    assert calls[2:] == ["slow", "quick", "quick", "slow", "slow", "quick"]
    assert seconds == {"slow": [4, 4, 4], "quick": [1, 1, 1]}
    assert ratio(seconds["slow"], seconds["quick"]) == 4
    times = iter([10.0, 10.5, 12.5])
    parts = seconds_between(lambda end_part: end_part(), "cpu", times.__next__)
    assert parts == [0.5, 2.0]


def test_memory__measures_peak_during_call():
    def hold(count):
        tensors = [torch.ones(25_000_000) for _ in range(count)]  # 100 MB each
        time.sleep(0.01)
        return tensors

    assert peak_extra_bytes(lambda: hold(3), "cpu") == pytest.approx(300e6, rel=0.2)
