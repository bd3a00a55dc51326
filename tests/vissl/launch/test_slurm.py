"""Pre-emption, through submitit, which runs the job on this machine where there is no SLURM."""

import os
import signal
import sys
import time

import pytest
from submitit.core.utils import DelayedSubmission
from vissl.config import AttrDict

from pirl_plugin.vissl.launch.worker import SlurmJob
from tests.helpers.host_runs import settings
from tests.helpers.launched import STEP, children, started


def job(folder, ours=True):
    hooks = {"PIRL_RUN": {}} if ours else {}
    config = {"HOOKS": hooks, "LOSS": {"name": "any"}, "CHECKPOINT": {"DIR": str(folder)}}
    return SlurmJob("train", AttrDict(config))


def requeued(submission, left, path):
    """Time-outs that are left after submitit has written the job and read it again."""
    submission.set_timeout(60, left)
    submission.dump(path)
    loaded = DelayedSubmission.load(path)
    assert isinstance(loaded.function, SlurmJob)
    return loaded._timeout_countdown


def test_requeue__counts_time_outs_without_progress_alone(tmp_path):
    stuck = job(tmp_path)
    assert requeued(stuck.checkpoint(), 1, tmp_path / "job.pkl") == 1
    (tmp_path / "model_phase0.torch").touch()
    assert requeued(stuck.checkpoint(), 1, tmp_path / "job.pkl") == 3
    hosts = job(tmp_path, ours=False)
    assert requeued(hosts.checkpoint(), 1, tmp_path / "job.pkl") == 1


@pytest.mark.slow
def test_preemption__ends_the_ranks_and_requeues_the_job(image_folder, tmp_path):
    overrides = [
        *settings(image_folder, tmp_path / "out", epochs=500, processes=2),
        "config.SLURM.USE_SLURM=true",
        "config.SLURM.PARTITION=any",
        f"config.SLURM.LOG_FOLDER={tmp_path / 'logs'}",
        "config.SLURM.PORT_ID=0",  # not used: one node
    ]
    command = [sys.executable, "-m", "pirl_plugin", "train"]
    with started(overrides, tmp_path, command) as submitted:
        assert submitted.status() == 0
        controller = int(submitted.out.partition("SUBMITTED: ")[2].split()[0])
        logs = tmp_path / "logs"
        wait_until(lambda: any(STEP in log.read_text() for log in logs.glob("*_log.out")))
        (task,) = children(controller)
        family = [task, *children(task)]
        os.kill(task, signal.SIGUSR2)
        wait_until(lambda: not any(os.path.exists(f"/proc/{pid}/cmdline") for pid in family), 90)
        (log,) = logs.glob("*_log.out")
        assert "Requeued job" in log.read_text()
        (pickled,) = logs.glob("*_submitted.pkl")
        assert DelayedSubmission.load(pickled)._timeout_countdown == 3
        assert not (tmp_path / "out" / "run.lock").exists()


def wait_until(condition, seconds=180):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)
