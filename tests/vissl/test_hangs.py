"""A process that hangs ends: on a second signal, and if its loader gives no batch in time."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from pirl_plugin.vissl.hangs import WaitLimit, WatchedBatches
from tests.helpers.host_runs import settings
from tests.helpers.launched import gone, quiet, started

# A main thread that does nothing on signals, like one that waits in a read or a collective.
DEAF = """
import signal, time
from pirl_plugin.vissl.hangs import second_signal_ends_process
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, lambda number, frame: None)
with second_signal_ends_process():
    print("ready", flush=True)
    while True:
        time.sleep(60)
"""


def test_second_signal__ends_a_process_that_does_not_react():
    with subprocess.Popen(
        [sys.executable, "-c", DEAF], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)  # one Ctrl-C may reach a process more than once
        time.sleep(2.2)
        process.send_signal(signal.SIGUSR1)  # SLURM asks again: no reason to lose the step
        time.sleep(0.2)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 128 + signal.SIGTERM
        assert process.stderr.read().startswith("pirl_plugin: SIGTERM again: ")


def test_wait__that_takes_too_long_ends_the_process_and_leaves_its_stack(tmp_path):
    code = (
        "import os, pathlib, sys, time\n"
        "from pirl_plugin.vissl.hangs import WaitLimit\n"
        "limit = WaitLimit(0.01, pathlib.Path(sys.argv[1]))\n"
        "for number in range(3):\n"
        "    with limit.waiting(): time.sleep(0.3)\n"
        "time.sleep(0.9)\n"  # the main thread computes
        "os.mkfifo(sys.argv[1] + '/fifo')\n"
        "with limit.waiting(): open(sys.argv[1] + '/fifo')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "rank 0: the loader gave no batch for 0.01 minutes" in done.stderr
    assert "open(sys.argv[1]" not in done.stderr
    assert "in <module>" in (tmp_path / "failure.txt").read_text()


def test_watched_batches__are_those_of_the_loader(tmp_path):
    before = threading.active_count()
    batches = WatchedBatches([1, 2, 3], WaitLimit(0.001, tmp_path))
    assert threading.active_count() == before + 1
    assert list(batches) == [1, 2, 3]
    del batches
    gc.collect()
    time.sleep(0.1)
    assert threading.active_count() == before


@pytest.mark.slow
@pytest.mark.parametrize(("processes", "workers"), [(1, 0), (1, 1), (2, 1)])
def test_run__whose_read_does_not_return_ends(processes, workers, image_folder, tmp_path):
    """The read hangs in a worker, or without workers in the rank itself."""
    overrides = [
        *settings(image_folder, tmp_path, epochs=1, processes=processes, workers=workers),
        "config.HOOKS.PIRL_RUN.timeout_minutes=0.3",
    ]
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "def hang(event, arguments):\n"
        "    if event == 'open' and str(arguments[0]).endswith('train/ants/3.jpg'):\n"
        "        import time; time.sleep(1000)\n"
        "sys.addaudithook(hang)\n"
    )
    with started(overrides, tmp_path / "console", PYTHONPATH=path) as training:
        assert training.status() == 1
        assert "the loader gave no batch for 0.3 minutes" in quiet(training)
        assert gone(training)
