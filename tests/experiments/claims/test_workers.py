"""Models side by side: each process sees one GPU of those that may be used."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from pirl_plugin.experiments.claims import workers

RUN = """
import signal, sys, time
from pathlib import Path

def save(*_):
    Path(sys.argv[1]).write_text("saved")
    sys.exit(143)

signal.signal(signal.SIGTERM, save)
signal.signal(signal.SIGINT, save)
Path(sys.argv[1]).write_text("began")
time.sleep(60)
"""
COMMAND = """
import os, sys
from contextlib import closing
from pathlib import Path
from pirl_plugin.experiments.claims import workers
from pirl_plugin.utils.subprocesses import ended_by_sigterm, stream

def make(job, out):
    if job == "dies":
        os._exit(9)
    if job == "long":
        stream([sys.executable, "run.py", f"{os.getpid()}.run"])
    return {"device": os.environ["CUDA_VISIBLE_DEVICES"]}

workers.make = make
if __name__ == "__main__":
    rows = workers.finished_rows(sys.argv[1:], None, 2, lambda job: None)
    with ended_by_sigterm(), closing(rows):
        for job, row in rows:
            print(job, row, flush=True)
"""


def side_by_side(folder, *jobs):
    (folder / "run.py").write_text(RUN)
    (folder / "command.py").write_text(COMMAND)
    return subprocess.Popen(
        [sys.executable, "command.py", *jobs],
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A shell's background jobs ignore Ctrl-C, and so would what they start.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def test_side_by_side__a_model_is_announced_when_it_starts(monkeypatch):
    """All were announced at the beginning, with the time that was left then."""
    announced, first = [], threading.Barrier(2)
    at_start = {}

    def apart(job, *_):
        if job != "third":
            first.wait(timeout=30)
            at_start[job] = list(announced)
            first.wait(timeout=30)
        return f"{job} is made"

    monkeypatch.setattr(workers, "_apart", apart)
    rows = dict(workers.finished_rows(["one", "two", "third"], None, 2, announced.append))
    assert set(rows) == {"one", "two", "third"}
    assert [sorted(found) for found in at_start.values()] == [["one", "two"]] * 2
    assert announced[2] == "third"


def test_side_by_side__a_dead_process_loses_its_own_model_alone(tmp_path, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with side_by_side(tmp_path, "dies", "quick", "quick") as process:
        lines = process.communicate(timeout=120)[0].splitlines()
    assert process.returncode == 0
    assert "dies pirl_plugin: its process died (exit code 9)" in lines
    devices = [line for line in lines if line.startswith("quick")]
    assert len(devices) == 2
    assert set(devices) <= {"quick {'device': '0'}", "quick {'device': '1'}"}


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_side_by_side__a_signal_ends_what_runs_and_starts_no_more(number, tmp_path):
    with side_by_side(tmp_path, *["long"] * 5) as process:
        until = time.monotonic() + 120
        while len(list(tmp_path.glob("*.run"))) < 2:
            assert time.monotonic() < until
            time.sleep(0.1)
        if number == signal.SIGTERM:
            process.send_signal(number)
        else:  # a terminal sends it to all
            os.killpg(process.pid, number)
        process.communicate(timeout=60)
    assert process.returncode != 0
    assert [file.read_text() for file in tmp_path.glob("*.run")] == ["saved", "saved"]


@pytest.mark.parametrize(
    ("visible", "expected"),
    [(None, ["0", "1", "2"]), ("4,6", ["4", "6", "4"]), ("7", ["7"] * 3), ("", [""] * 3)],
)
def test_process__sees_one_device(visible, expected, monkeypatch):
    seen = []
    for number in range(3):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible or "")  # undone at the end
        if visible is None:
            monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
        workers.take_device(number)
        seen.append(os.environ["CUDA_VISIBLE_DEVICES"])
    assert seen == expected


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (SystemExit("pirl_plugin: it failed"), "pirl_plugin: it failed"),
        (OSError("no space left"), "OSError: no space left"),
        (RuntimeError("CUDA out of memory"), "RuntimeError: CUDA out of memory"),
    ],
)
def test_outcome__of_any_failure_is_what_is_to_be_said(error, said, monkeypatch):
    def fail(job, workspace):
        raise error

    monkeypatch.setattr(workers, "make", fail)
    assert workers._outcome(None, None) == said
