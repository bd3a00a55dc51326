"""The benchmark of training: the host's reports read aright, and both runs for real."""

import json

import pytest

from pirl_plugin.benchmark.command import main
from pirl_plugin.benchmark.train import parse_timers

# Steps of 10, 20 and 30 ms, of which 4, 6 and 5 ms read. The whole step stops after the report.
LOG = """
INFO a.py: 1: Average time:
           Timer     Host    CudaEvent
     read_sample:    4.00 ms    0.00 ms
         forward:    2.00 ms    1.00 ms
     read_sample:    5.00 ms    0.00 ms
         forward:    2.00 ms    1.00 ms
train_step_total:   10.00 ms    9.00 ms
     read_sample:    5.00 ms    0.00 ms
         forward:    2.00 ms    1.00 ms
train_step_total:   15.00 ms   14.00 ms
"""


def test_timers__become_those_of_each_step():
    assert parse_timers(LOG) == [
        {"read_sample": 4.0, "forward": 2.0, "train_step_total": 10.0},
        {"read_sample": 6.0, "forward": 2.0, "train_step_total": 20.0},
    ]
    on_gpu = parse_timers(LOG, on_gpu=True)
    assert on_gpu[1] == {"read_sample": 6.0, "forward": 1.0, "train_step_total": 19.0}


def test_train__refuses_fewer_images_than_steps():
    with pytest.raises(SystemExit, match=r"--rows 10 is less than the 384 images of 8 \+ 4 steps"):
        main(["train", "--rows", "10"])


@pytest.mark.slow
def test_train__runs_both_and_is_ahead(image_folder, tmp_path):
    file = tmp_path / "rows.json"
    sizes = ["--batch", "4", "--steps", "3", "--rounds", "1", "--negatives", "64", "--rows", "400"]
    main(["train", "--data", str(image_folder / "train"), "--json", str(file), *sizes])
    rows = {row["training"]: row for row in json.loads(file.read_text())["rows"]}
    assert set(rows) == {"vissl", "ours", "ours, bfloat16"}
    for row in rows.values():
        shares = [value for key, value in row.items() if key.endswith("_share")]
        assert sum(shares) == pytest.approx(1, abs=0.1)
    assert rows["ours"]["input_share"] < rows["vissl"]["input_share"]
