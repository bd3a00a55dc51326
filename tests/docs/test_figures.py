"""Measured figures on the pages match the JSON files in docs/results."""

import json
import math
import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAKE = runpy.run_path(str(ROOT / "docs" / "make_speed.py"))
SPEED, GPU = MAKE["PAGES"]
IMAGENET = 1_281_167  # images
SECONDS = {"hours": 3600, "days": 86_400}
measured = pytest.mark.skipif(
    not MAKE["SPEED"].is_dir(), reason="docs/results/speed: not measured yet on an idle machine"
)


def text(page):
    """Return the text of a page without line breaks."""
    return " ".join((ROOT / page).read_text().split())


@pytest.mark.parametrize("page", [pytest.param(SPEED, marks=measured), GPU])
def test_tables__match_result_files(page):
    assert MAKE["page"](page) == page.read_text(), "run python docs/make_speed.py"


@measured
def test_sentences__match_result_files():
    rates = {}
    for name in MAKE["DATA"]:
        rows = MAKE["by_name"](MAKE["speed"](name)["rows"], "transform", "pipeline")
        for pipeline in ("vissl", "fused"):
            rates[name, pipeline] = rows["jigsaw", pipeline]["images_per_s_per_core"]
    ours = rates["photos", "fused"]
    prepared = rates["prepared", "fused"]
    (nce,) = [row for row in MAKE["speed"]("loss")["rows"] if row["estimator"] == "nce"]
    memory = 1 / nce["memory_ratio_to_vissl"]
    readme = text("README.md")
    assert (
        f"{rates['photos', 'vissl']:.0f} images/s on one core, and this package {ours:.0f}"
        in readme
    )
    assert (
        f"{nce['speedup_over_vissl']:.0f} times as long, and {memory:.0f} times the memory"
        in readme
    )
    launching = text("docs/guides/launching.md")
    assert f"{ours:.0f} native-size photos a second, or of {prepared:.0f} photos" in launching
    assert f"is read {prepared / ours:.1f} times as fast" in text("docs/guides/data.md")


def test_run_costs__follow_from_step_rates():
    step = json.loads((ROOT / "docs/results/gpu.json").read_text())["step"]
    rates = {
        row["precision"].upper(): row["images_per_s"] for row in step["rows"] if row["batch"] == 128
    }
    page = text("docs/guides/launching.md")
    rows = re.findall(r"\| (\w+) \| ([\d,]+) \| ([\d.]+) (\w+) \| ([\d.]+) (\w+) \|", page)
    assert {row[0].upper() for row in rows} == rates.keys()
    for precision, rate, short, short_unit, long, long_unit in rows:
        expected = rates[precision.upper()]
        assert int(rate.replace(",", "")) == round(expected)
        for epochs, value, unit in ((100, short, short_unit), (800, long, long_unit)):
            time = epochs * IMAGENET / expected / SECONDS[unit]
            digits = len(value.partition(".")[2])
            assert float(value) == round(time, digits)
    native, prepared = map(int, re.findall(r"(\d+) native.* of (\d+) photos", page)[0])
    cores = [math.ceil(rates["BFLOAT16"] / rate) for rate in (native, prepared)]
    names = {3: "three", 4: "four", 5: "five", 6: "six", 7: "seven"}
    assert f"needs {names[cores[0]]} cores, or {names[cores[1]]}." in page
