"""What a person reads at the end of a run."""

import os
import subprocess
import sys
from contextlib import closing

import pytest
import torch

from pirl_plugin.system.console import Progress, next_commands


def test_next_commands__of_the_quickstart_name_the_data_of_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    out = tmp_path / "runs" / "a b"
    file = out / "checkpoint.torch"
    drawn = next_commands(file, out / "sample_data" / "train", quickstart=out)
    assert "--data DIR" in drawn["The same on your own images"]
    assert f"'{out}_own'" in drawn["The same on your own images"]
    own = next_commands(file, tmp_path / "my photos", quickstart=out)
    longer = own["A longer training of a larger network on these images"]
    assert "machines=cpu" in longer
    assert f"'{tmp_path}/my photos'" in longer.replace("'\"'\"'", "'")


def test_progress__is_on_stderr_and_sparse_in_a_log(monkeypatch, capsys):
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    with closing(Progress("features", 100, began=now[0])) as progress:
        for _ in range(10):  # a batch of 10 each 20 s, a line each 30 s
            now[0] += 20
            progress.update(10)
    out, errors = capsys.readouterr()
    lines = errors.splitlines()
    assert out == ""
    assert lines[0] == "features  10/100 images  0 images/s  0:03:00 left"
    assert lines[-1] == "features  100/100 images  0 images/s  0:00:00 left"
    assert len(lines) == 6


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_put__a_closed_stream_ends_no_command(stream):
    code = f"from pirl_plugin.system.console import put\nput('a', '{stream}')"
    read, write = os.pipe()
    os.close(read)  # as a terminal that was closed
    subprocess.run([sys.executable, "-c", code], check=True, **{stream: write})
    os.close(write)
