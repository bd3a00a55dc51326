"""VISSL's own, unmodified script, run as a user would run it."""

import shutil

import pytest

from pirl_plugin.method.bank import MemoryBank
from tests.helpers.host_runs import run, settings, state


@pytest.mark.slow
def test_host__counts_a_corrupt_image_and_finishes(image_folder, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(image_folder, data)
    broken = data / "train" / "ants" / "0.jpg"
    broken.write_bytes(broken.read_bytes()[:200])
    overrides = settings(data, tmp_path / "out", epochs=2, workers=1)
    result = run(*overrides)
    assert result.stderr.count(str(broken)) <= 1  # by a worker: not once an epoch or worker
    assert result.stdout.count(str(broken)) == 1  # in the log
    assert "Unreadable files (1): " in result.stdout
    loss, _ = state(tmp_path / "out")
    untouched = MemoryBank(20, 128).rows
    moved = (loss["bank.rows"] != untouched).any(dim=1)
    assert moved.tolist() == [False] + [True] * 19  # its row alone was never updated
