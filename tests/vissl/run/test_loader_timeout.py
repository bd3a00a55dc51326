"""A run ends if its loader gives no batch in time."""

import os
import subprocess
import sys

import pytest
from torch.utils.data import DataLoader

from pirl_plugin.vissl.run.loader_timeout import LimitedLoader, WaitLimit
from tests.helpers.host_runs import settings
from tests.helpers.launched import gone, quiet, started


def test_wait__that_takes_too_long_ends_the_process_and_leaves_its_stack(tmp_path):
    code = (
        "import os, pathlib, sys, time\n"
        "from pirl_plugin.vissl.run.loader_timeout import WaitLimit\n"
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


def test_loader__gives_the_batches_of_the_hosts(tmp_path):
    loader = LimitedLoader(DataLoader([1, 2, 3], batch_size=None), WaitLimit(1, tmp_path))
    assert len(loader) == 3
    assert loader.batch_size is None
    for _ in range(2):
        batches = iter(loader)
        assert len(batches) == 3
        assert list(batches) == [1, 2, 3]


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
