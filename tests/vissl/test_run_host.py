"""The unmodified host's own script, run as a user would run it."""

import re
import shutil

import pytest
import torch

from pirl_plugin.bank import MemoryBank
from tests.helpers.host_runs import losses, run, settings, state


@pytest.fixture(scope="module")
def two_processes(image_folder, tmp_path_factory):
    """Two processes with two workers each, two epochs."""
    out = tmp_path_factory.mktemp("whole")
    overrides = settings(image_folder, out, epochs=2, processes=2, workers=2)
    return out, run(*overrides, "config.LOG_FREQUENCY=1")


def test_host__trains_pirl_in_two_processes(two_processes):
    out, result = two_processes
    assert all(0 < loss < 50 for loss in losses(out).values())
    loss, _ = state(out)
    assert loss["bank.rows"].shape == (20, 128)
    torch.testing.assert_close(loss["bank.rows"].norm(dim=1), torch.ones(20))
    # 20 images / 2 processes / 4 = 3 steps an epoch
    assert loss["_extra_state"]["step"] == 6
    assert [
        line for line in (result.stdout + result.stderr).splitlines() if "Warning" in line
    ] == []


def test_filled_bank__agrees_with_the_first_batch(two_processes):
    """Rows that agree with what moves them keep their norm of 1; beside random ones it is 0.71."""
    _, result = two_processes
    assert result.stdout.count("PIRL: filled the memory bank in ") == 1
    norms = re.findall(r"row norm: ([\d.]+); rows visited: 1.0000", result.stdout)
    assert norms[0] == "1.0000"
    assert len(norms) == 6  # each epoch has all its batches


def test_host__counts_a_corrupt_image_and_finishes(image_folder, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(image_folder, data)
    broken = data / "train" / "ants" / "0.jpg"
    broken.write_bytes(broken.read_bytes()[:200])
    overrides = settings(data, tmp_path / "out", epochs=2, workers=2)
    result = run(*overrides)
    assert result.stderr.count(str(broken)) <= 1  # by a worker: not once an epoch or worker
    assert result.stdout.count(str(broken)) == 1  # in the log
    assert "1 files could not be read; loss and memory bank do not use them" in result.stdout
    loss, _ = state(tmp_path / "out")
    untouched = MemoryBank(20, 128).rows
    moved = (loss["bank.rows"] != untouched).any(dim=1)
    assert moved.tolist() == [False] + [True] * 19  # its row alone was never updated
