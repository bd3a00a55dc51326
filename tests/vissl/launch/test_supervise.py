import os
import signal
import sys

import pytest
import torch

from pirl_plugin.vissl.launch.supervise import max_restarts, supervise
from tests.helpers.host_runs import settings, state
from tests.helpers.launched import children, ranks_of, started

# A run that counts its attempts, saves a checkpoint in those named, and ends with those statuses.
RUN = """
import os, sys, pathlib, time
folder, statuses, saves = pathlib.Path(sys.argv[1]), sys.argv[2].split(","), sys.argv[3].split(",")
count = folder / "count"
attempt = int(count.read_text()) if count.exists() else 0
count.write_text(str(attempt + 1))
if statuses[attempt] != "refused":
    pathlib.Path(os.environ["PIRL_PLUGIN_STARTED"]).touch()
if str(attempt) in saves:
    (folder / f"model_phase{attempt}.torch").write_text("x")
    os.utime(folder / f"model_phase{attempt}.torch", (attempt, attempt))
sys.exit(1 if statuses[attempt] == "refused" else int(statuses[attempt]))
"""


@pytest.mark.parametrize(
    ("statuses", "saves", "restarts", "status", "attempts"),
    [
        ("1,1,0", "", 2, 0, 3),
        ("1,1,1", "", 2, 1, 3),
        ("1,1,1,1,1,0", "0,1,2,3,4", 1, 0, 6),  # gets on each time
        ("1,1,1,1", "0", 1, 1, 2),  # then no more
        ("refused,0", "", 3, 1, 1),
        ("65,0", "", 3, 65, 1),  # NaN, images that changed: the same again
        ("130,0", "", 3, 130, 1),
        ("0", "", 3, 0, 1),
    ],
)
def test_supervise__starts_again_while_it_helps(
    statuses, saves, restarts, status, attempts, tmp_path
):
    command = [sys.executable, "-c", RUN, str(tmp_path), statuses, saves]
    assert supervise(command, restarts, tmp_path, pause_s=0) == status
    assert int((tmp_path / "count").read_text()) == attempts


@pytest.mark.parametrize("given", [["--max-restarts"], ["--max-restarts=x"], ["--max-restarts=-1"]])
def test_max_restarts__is_a_number(given):
    with pytest.raises(SystemExit, match=r"--max-restarts .*: expected a whole number from 0"):
        max_restarts(given)


@pytest.mark.slow
def test_restarts__lead_to_the_result_of_an_undisturbed_run(image_folder, tmp_path):
    whole, disturbed = tmp_path / "whole", tmp_path / "disturbed"
    command = [sys.executable, "-m", "pirl_plugin", "train", "--max-restarts", "3"]
    with started(settings(image_folder, whole, 8, processes=2), tmp_path / "w", command) as run:
        assert run.status() == 0
    with started(settings(image_folder, disturbed, 8, processes=2), tmp_path / "d", command) as run:
        run.wait_for("Saved checkpoint: ", count=2)
        (launcher,) = children(run.process.pid)
        os.kill(ranks_of(launcher)[-1], signal.SIGKILL)
        assert run.status(400) == 0
        assert "the run ended with exit status 1: started again in 5 s" in run.err
    expected, found = state(whole), state(disturbed)
    assert torch.equal(expected[0]["bank.rows"], found[0]["bank.rows"])
    for name, tensor in found[1].items():
        assert torch.equal(tensor, expected[1][name]), name
