"""Faults of processes, injected into runs of the host's own script."""

import os
import signal
import subprocess
import sys
import time

import pytest

from pirl_plugin.vissl.launch.failures import Failure
from pirl_plugin.vissl.launch.ranks import RanksFailedError
from pirl_plugin.vissl.launch.run import _failures, resume_sentence
from tests.helpers.host_runs import ELSEWHERE, run, settings
from tests.helpers.launched import STEP, TRACEBACK, gone, quiet, started


@pytest.mark.parametrize(
    ("whom", "prefetch"),
    [pytest.param("launcher", "true", marks=pytest.mark.slow), ("terminal", "true"),
     pytest.param("terminal", "null", marks=pytest.mark.slow)],
)  # fmt: skip
def test_sigint__ends_with_130_and_says_where_the_run_resumes(
    whom, prefetch, image_folder, tmp_path
):
    out = tmp_path / "out"
    overrides = settings(image_folder, out, epochs=500, processes=2, workers=1)
    overrides.append(f"config.HOOKS.PIRL_INPUT.prefetch={prefetch}")
    with started(overrides, tmp_path) as faulty:
        faulty.wait_for("Saved checkpoint: ")
        if whom == "launcher":
            os.kill(faulty.process.pid, signal.SIGINT)
        else:
            os.killpg(faulty.process.pid, signal.SIGINT)
        assert faulty.status() == 130
        sentence = quiet(faulty)
        assert f"SIGINT: the run has ended; the same command resumes from {out}/model_" in sentence
        assert gone(faulty)
        assert "All Done!" not in faulty.out
    assert not (out / "run.lock").exists()


@pytest.mark.slow
def test_console__that_has_gone_ends_no_run(image_folder, tmp_path):
    """``| tee log`` ends, or a terminal is closed, while the run goes on."""
    command = [sys.executable, "-m", "pirl_plugin", "train"]
    command += settings(image_folder, tmp_path / "out", epochs=3)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PIRL_PLUGIN_CONSOLE": "page"}
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=ELSEWHERE,
    )
    while not process.stdout.readline().startswith("logs "):
        assert process.poll() is None
    process.stdout.close()
    said = process.stderr.read()
    assert process.wait(180) == 0, said
    assert TRACEBACK not in said
    assert (tmp_path / "out" / "model_final_checkpoint_phase2.torch").exists()
    log = (tmp_path / "out" / "log.txt").read_text()
    assert log.count("The console cannot be written to ([Errno 32] Broken pipe)") == 1


def test_terminal__that_is_closed_ends_no_run(image_folder, tmp_path):
    """SIGHUP, which all its processes get, ended the run with nothing saved."""
    overrides = settings(image_folder, tmp_path / "out", epochs=20, processes=2)
    with started(overrides, tmp_path) as faulty:
        faulty.wait_for(STEP)
        assert faulty.process.poll() is None
        os.killpg(faulty.process.pid, signal.SIGHUP)
        assert faulty.status(240) == 0
    assert (tmp_path / "out" / "model_final_checkpoint_phase19.torch").exists()


def test_sigint__of_a_run_of_one_process(image_folder, tmp_path):
    overrides = settings(image_folder, tmp_path / "out", epochs=500)
    overrides.append("config.CHECKPOINT.CHECKPOINT_FREQUENCY=1000")  # saves after the first epoch
    with started(overrides, tmp_path) as faulty:
        faulty.wait_for(STEP, count=2)
        os.killpg(faulty.process.pid, signal.SIGINT)
        assert faulty.status() == 130
        assert quiet(faulty).endswith(f"resumes from {tmp_path / 'out' / 'model_phase0.torch'}")
        assert gone(faulty)


def test_stop__while_the_bank_is_filled(image_folder, tmp_path):
    """It was noted until the first step had ended: a third of an epoch later."""
    (images := tmp_path / "images").mkdir()
    for number in range(4000):
        (images / f"{number}.jpg").symlink_to(
            image_folder / "train" / "ants" / f"{number % 10}.jpg"
        )
    overrides = settings(image_folder, tmp_path / "out", epochs=1, processes=2)
    overrides.append(f"config.DATA.TRAIN.DATA_PATHS=[{images}]")
    with started(overrides, tmp_path) as faulty:
        faulty.wait_for("PIRL: filling the memory bank, 4,000 rows")
        faulty.process.terminate()
        assert faulty.status(60) == 143
        assert "stopped by SIGTERM before the first step; the same command begins" in faulty.out
        assert "PIRL: filled the memory bank" not in faulty.out
        assert TRACEBACK not in faulty.err
        assert gone(faulty)
    assert not list((tmp_path / "out").glob("*.torch"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR2])
def test_stop__before_the_first_step_is_no_failure(number, capsys):
    """Or a supervisor would start the run again, against the wish of who stops it."""
    failures = [Failure(0, f"rank 0 was ended by {number.name}")]
    for status, said in ((-number, 1), (128 + number, 0)):  # not yet listening; saved and stopped
        with pytest.raises(SystemExit) as ended:
            _failures(RanksFailedError(failures, status), timeout_minutes=1)
        assert ended.value.code == 128 + number
        assert capsys.readouterr().err.count(f"{number.name}: the run has ended; give") == said


def test_resume_sentence__says_where_there_is_no_checkpoint(tmp_path):
    assert "there is no checkpoint in" in resume_sentence(tmp_path)
    for second, name in enumerate(("model_phase1.torch", "model_iteration7.torch")):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (second, second))
    assert resume_sentence(tmp_path).endswith("model_iteration7.torch")


def test_lock__refuses_a_second_run_and_names_the_first(image_folder, tmp_path):
    overrides = settings(image_folder, tmp_path / "out", epochs=500)
    with started(overrides, tmp_path) as first:
        first.wait_for(STEP)
        second = run(*overrides, check=False)
        assert second.returncode == 1
        assert f"process {first.process.pid}, started 20" in second.stderr
        assert "config.CHECKPOINT.DIR = " in second.stderr
        assert TRACEBACK not in second.stderr
        assert first.process.poll() is None


@pytest.mark.parametrize(
    "sent", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.slow)]
)
def test_rank__that_is_lost_ends_the_run(sent, image_folder, tmp_path):
    overrides = settings(image_folder, tmp_path / "out", epochs=500, processes=2)
    overrides.append("config.HOOKS.PIRL_RUN.timeout_minutes=0.1")  # 6 seconds
    with started(overrides, tmp_path) as faulty:
        faulty.wait_for(STEP)
        os.kill(faulty.ranks()[1], sent)
        lost = time.monotonic()
        assert faulty.status(60) == 1
        assert time.monotonic() - lost < 45
        sentence = quiet(faulty)
        if sent == signal.SIGKILL:
            assert "was ended by SIGKILL" in sentence
        else:
            assert "config.HOOKS.PIRL_RUN.timeout_minutes = 0.1" in sentence
        assert gone(faulty)


@pytest.mark.slow
@pytest.mark.parametrize("prefetch", ["true", "null"])
def test_launcher__that_is_killed_takes_its_ranks_with_it(prefetch, image_folder, tmp_path):
    overrides = settings(image_folder, tmp_path / "out", epochs=500, processes=2, workers=1)
    overrides.append(f"config.HOOKS.PIRL_INPUT.prefetch={prefetch}")
    with started(overrides, tmp_path) as faulty:
        faulty.wait_for(STEP)
        faulty.process.kill()
        faulty.process.wait()
        assert gone(faulty, seconds=20)
        assert TRACEBACK not in faulty.out + faulty.err


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_nan__stops_all_ranks_and_is_not_saved(processes, image_folder, tmp_path):
    out = tmp_path / "out"
    overrides = settings(image_folder, out, epochs=20, processes=processes)
    overrides.append("config.OPTIMIZER.param_schedulers.lr.value=1e30")
    with started(overrides, tmp_path) as faulty:
        assert faulty.status() == 65
        sentence = quiet(faulty)
        ranks = ", ".join(map(str, range(processes)))
        assert f"the model's output is not finite on rank {ranks}, step 1, rows [" in sentence
        assert not list(out.glob("rank*_model_output.pth"))
        assert not list(out.glob("model_iteration*"))


@pytest.fixture(scope="module")
def failed(image_folder, tmp_path_factory):
    """A run that fails in its first step, asked for the traceback, and its log."""
    out = tmp_path_factory.mktemp("failed")
    overrides = settings(image_folder, out, epochs=1)
    overrides.append("config.OPTIMIZER.param_schedulers.lr.value=1e30")
    secret = {"WANDB_API_KEY": "hunter2", "DATABASE": "hunter2", "HTTP_PROXY": "http://u:hunter2@h"}
    result = run(*overrides, check=False, environment={"PIRL_PLUGIN_TRACEBACK": "1", **secret})
    return result, (out / "log.txt").read_text()


def test_environment__is_masked_in_our_logs(failed):
    result, log = failed
    assert "hunter2" not in result.stdout + result.stderr + log
    assert "WANDB_API_KEY:\t(not logged)" in log
    assert "OMP_NUM_THREADS:\t1" in log


def test_failure__shows_its_traceback_where_that_is_asked_for(failed):
    result, _ = failed
    assert result.returncode == 65
    assert TRACEBACK in result.stderr
    assert "vissl_finite_hook.py" in result.stderr
