"""The benchmark of overlap: the bound by hand, and its runs for real."""

import json

import pytest

from pirl_plugin.benchmark.command import main
from pirl_plugin.benchmark.overlap import least_step, share_saved


@pytest.mark.parametrize(
    ("alone", "model", "workers", "cores", "least"),
    [
        (60, 300, 0, 2, 360),  # one after the other
        (60, 300, 1, 1, 360),  # one core does both
        (60, 300, 1, 2, 330),  # (60 + 2 · 300) / 2 of each core
        (800, 300, 1, 4, 700),  # two read, of four cores
        (800, 300, 3, 4, 500),  # (800 + 4 · 300) / 4 of each core
    ],
)
def test_least_step__by_hand(alone, model, workers, cores, least):
    assert least_step(alone, model, workers, cores) == least


def test_share__is_of_what_can_be_saved():
    assert share_saved(360, 330, 330) == 1
    assert share_saved(360, 330, 375) == -0.5
    assert share_saved(360, 360, 361) is None


@pytest.mark.slow
@pytest.mark.parametrize("network", [["--negatives", "64"], ["--quick"]])
def test_overlap__runs_without_and_with_a_worker(network, image_folder, tmp_path):
    file = tmp_path / "rows.json"
    sizes = ["--batch", "4", "--steps", "3", "--rounds", "1", "--rows", "2500", *network]
    main(["overlap", "--data", str(image_folder / "train"), "--json", str(file), *sizes])
    alone, overlapped = json.loads(file.read_text())["rows"]
    assert (alone["workers"], overlapped["workers"]) == (0, 1)
    assert alone["times 0 workers"] == 1
    assert overlapped["least step"] <= alone["least step"]
    assert overlapped["step"] >= overlapped["input"] > 0
