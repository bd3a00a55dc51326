"""Runs with several processes, torchrun and signals, and their failures."""

import multiprocessing
import os
import re
import signal
import socket
import sys
import time

import pytest

from pirl_plugin.method.settings import unpack_state
from pirl_plugin.system import watcher
from pirl_plugin.system.watcher import Interrupted, Watcher
from pirl_plugin.vissl.run import launch
from tests.helpers.forks import fork_command, wait_for
from tests.helpers.host_runs import run, settings, state
from tests.helpers.launched import STEP, TRACEBACK, children, gone, quiet, started

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
EVERY_STEP = ["config.LOG_FREQUENCY=1"]


@pytest.mark.slow
def test_torchrun__restarts_failed_run(image_folder, tmp_path):
    overrides = [*settings(image_folder, tmp_path, epochs=6), *EVERY_STEP]
    command = [*TORCHRUN, "--nproc-per-node=2", "--max-restarts=1", "-m", "pirl_plugin", "train"]
    with started(overrides, tmp_path / "console", command=command) as training:
        training.wait_for(STEP, 4)
        os.kill(max(children(training.process.pid)), signal.SIGKILL)
        assert training.status() == 0
        assert "Resume from file" in training.out
    assert unpack_state(state(tmp_path)[0]["_extra_state"])["step"] == 18


@pytest.mark.parametrize("code", [1, -signal.SIGUSR1, -signal.SIGABRT])
def test_signal__ends_launcher_however_ranks_end(code, monkeypatch):
    """A rank loses its peer, does not listen yet, or is aborted by gloo at exit."""
    monkeypatch.setattr(watcher, "current", lambda: Watcher(requested=signal.SIGUSR1))
    reader, writer = multiprocessing.Pipe(duplex=False)
    writer.send(launch.Failure("rank 1: another rank ended", is_consequence=True))
    with pytest.raises(Interrupted) as interrupted:
        launch._end(code, 1, reader)
    assert interrupted.value.code == 128 + signal.SIGUSR1


@pytest.mark.slow
def test_unresponsive_rank__ends_the_run(image_folder, tmp_path):
    overrides = [*settings(image_folder, tmp_path, epochs=500, processes=2), *EVERY_STEP]
    overrides.append("config.HOOKS.PIRL_RUN.timeout_minutes=1")
    with started(overrides, tmp_path / "console") as training:
        training.wait_for(STEP, 2)
        os.kill(training.ranks()[1], signal.SIGSTOP)
        assert training.status() == 1
        assert "did not respond for 1 minutes" in quiet(training)


@pytest.mark.slow
def test_ranks__keep_folder_locked_after_launcher_is_killed(image_folder, tmp_path):
    overrides = [*settings(image_folder, tmp_path, epochs=500, processes=2), *EVERY_STEP]
    with started(overrides, tmp_path / "console") as training:
        training.wait_for(STEP, 2)
        rank = training.ranks()[1]
        os.kill(rank, signal.SIGSTOP)  # otherwise the ranks may end before the second run starts
        training.process.kill()
        training.process.wait()
        second = run(*overrides, check=False)
        assert second.returncode == 1
        assert "another process is writing to it" in second.stderr
        # At torch's request, the system has sent SIGINT to the ranks: they save and end.
        os.kill(rank, signal.SIGCONT)
        assert gone(training, seconds=120)
    assert unpack_state(state(tmp_path)[0]["_extra_state"])["step"] >= 2


@pytest.mark.slow
@pytest.mark.parametrize("num_started", [1, 2])
def test_signal__ends_run_while_ranks_start(num_started, image_folder, tmp_path):
    overrides = settings(image_folder, tmp_path, epochs=500, processes=2)
    with started(overrides, tmp_path / "console") as training:
        while len(training.ranks()) < num_started:
            assert training.process.poll() is None
            time.sleep(0.01)
        training.process.terminate()
        assert training.status_soon(30) == 128 + signal.SIGTERM
        assert quiet(training) == "pirl_plugin: interrupted by SIGTERM"
        assert gone(training)


def test_failed_rank__is_named_with_traceback_in_file(image_folder, tmp_path):
    """Spawned ranks import this package without the ``.pth`` file."""
    overrides = settings(image_folder, tmp_path / "out", epochs=1, processes=2)
    words = ["train", *overrides, "config.METERS.name=nothing"]
    console = tmp_path / "console"
    with console.open("w") as log:
        assert wait_for(fork_command(words, {"PIRL_PLUGIN_AUTOLOAD": "0"}, log, log)) == 1
    text = console.read_text()
    assert TRACEBACK not in text
    (line,) = (line for line in text.splitlines() if line.startswith("pirl_plugin: "))
    assert re.match(r"pirl_plugin: rank [01]: .*nothing", line)
    assert str(tmp_path / "out" / "failure.txt") in line
    assert TRACEBACK in (tmp_path / "out" / "failure.txt").read_text()


# They run a job at once, on this machine. submitit's arguments for srun are one flag and two paths.
SLURM = {
    "sbatch": """
        export SLURM_JOB_ID=7 SLURM_JOB_NODELIST=localhost
        echo Submitted batch job 7
        bash "$1" > /dev/null 2>&1 &
    """,
    "srun": """
        shift 5
        "$@"
    """,
}


@pytest.mark.slow
def test_slurm_job__trains(image_folder, tmp_path):
    """submitit submits the job, and the job trains."""
    for name, text in SLURM.items():
        (tmp_path / name).write_text(f"#!/usr/bin/env bash\n{text}")
        (tmp_path / name).chmod(0o755)
    with socket.socket() as probe:
        probe.bind(("", 0))
        port = probe.getsockname()[1]
    result = run(
        *settings(image_folder, tmp_path / "out", epochs=1),
        "config.SLURM.USE_SLURM=true", "config.SLURM.PARTITION=any",
        f"config.SLURM.LOG_FOLDER={tmp_path / 'logs'}", f"config.SLURM.PORT_ID={port}",
        environment={"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
    )  # fmt: skip
    end = time.monotonic() + 180
    while not list((tmp_path / "logs").glob("*_result.pkl")):
        assert time.monotonic() < end, "the job did not end"
        time.sleep(0.5)
    assert "SUBMITTED: 7" in result.stdout
    assert unpack_state(state(tmp_path / "out")[0]["_extra_state"])["step"] == 5


@pytest.mark.slow
@pytest.mark.parametrize(("processes", "workers"), [(1, 0), (1, 1), (2, 1)])
def test_run__ends_on_hanging_read(processes, workers, image_folder, tmp_path):
    """The read hangs in a worker or, without workers, in the rank itself."""
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
        assert "no image was read for 0.3 minutes (config.HOOKS.PIRL_RUN.timeout_" in training.err
        assert "train/ants/3.jpg does not return" in quiet(training)
        assert training.err.splitlines()[-1] == quiet(training)
        assert gone(training)
