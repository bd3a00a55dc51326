"""The bar of a run of the host, by the lines that the host prints."""

import io

from tqdm import tqdm

from pirl_plugin.quickstart import host_run as module

SIZES = [
    "One epoch = 10 iterations",
    "Total 320 samples in one epoch",
    "Total 240 iterations for training",
]


def test_progress__of_a_resumed_run_counts_what_is_left(monkeypatch):
    """The images of before the interruption counted as read in its first second."""
    now = [0.0]
    monkeypatch.setattr(module.time, "perf_counter", lambda: now[0])
    bar = tqdm(file=io.StringIO(), mininterval=0)
    bar._time = lambda: now[0]
    progress = module._Progress(bar)
    for line in [*SIZES, "Starting training"]:
        progress.read(line)
    for iteration, seconds in [(200, 0.0), (210, 10.0), (220, 20.0)]:
        now[0] = seconds
        progress.read(f"[ep: 20] iter: {iteration}; lr: 0.1; loss: 1.5;")
    shown = bar.format_dict
    assert (shown["n"], shown["total"], shown["initial"]) == (7040, 7680, 6400)
    assert shown["elapsed"] == 20
    assert "[00:20<00:20, 32.00it/s" in str(bar)
    now[0] = 40.0
    assert progress.finish() == 32.0
