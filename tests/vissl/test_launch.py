"""Runs by several processes, torchrun and signals; failures; the interface of several nodes."""

import os
import signal
import sys

import pytest
from omegaconf import OmegaConf

from pirl_plugin import failures
from pirl_plugin.vissl import launch, network, signals
from tests.helpers.host_runs import host_script, run, settings, state
from tests.helpers.launched import STEP, started


def torchrun(*arguments):
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", *arguments]


def test_torchrun__runs_the_hosts_script_on_two_ranks(image_folder, tmp_path):
    overrides = settings(image_folder, tmp_path, epochs=1)
    run(*overrides, command=torchrun("--nproc_per_node=2", str(host_script())))
    assert state(tmp_path)[0]["_extra_state"]["step"] == 3  # 20 images, 2 ranks, batches of 4


def test_torchrun__starts_a_failed_run_again(image_folder, tmp_path):
    overrides = settings(image_folder, tmp_path, epochs=3)
    overrides += ["config.LOG_FREQUENCY=1"]
    command = [*torchrun("--max-restarts=1", "-m", "pirl_plugin", "train")]
    with started(overrides, tmp_path / "console", command=command) as training:
        training.wait_for(STEP, 6)
        (rank,) = (int(pid) for pid in os.popen(f"pgrep -P {training.process.pid}").read().split())
        os.kill(rank, signal.SIGKILL)
        assert training.status() == 0
    assert state(tmp_path)[0]["_extra_state"]["step"] == 15
    assert "Resume from file" in (tmp_path / "log.txt").read_text()


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGINT])
def test_signal__to_the_launcher_saves_and_ends(number, image_folder, tmp_path):
    overrides = settings(image_folder, tmp_path, epochs=500, processes=2)
    with started([*overrides, "config.LOG_FREQUENCY=1"], tmp_path / "console") as training:
        training.wait_for(STEP, 2)
        training.process.send_signal(number)
        assert training.status() == 128 + number
        assert "which is saved in" in training.out + training.err
    assert state(tmp_path)[0]["_extra_state"]["step"] >= 1


def test_rank__that_fails_is_named_with_its_traceback_in_a_file(image_folder, tmp_path):
    overrides = settings(image_folder, tmp_path, epochs=1, processes=2)
    result = run(*overrides, "config.OPTIMIZER.name=nothing", check=False)
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    (line,) = (line for line in result.stderr.splitlines() if line.startswith("pirl_plugin: "))
    assert str(tmp_path / "failure.txt") in line
    assert "Traceback" in (tmp_path / "failure.txt").read_text()


def test_rank_sentence__tells_causes_from_consequences():
    timeout = RuntimeError("Timed out waiting 60000ms for recv operation to complete")
    assert "did not respond" in failures.rank_sentence(timeout, 1, 10)
    assert "lost" in failures.rank_sentence(RuntimeError("Connection closed by peer"), 1, 10)
    assert failures.rank_sentence(KeyError("a"), 1, 10) == "rank 1: KeyError: 'a'"


def test_signals__outside_training_end_at_once_and_inside_set_the_request():
    with pytest.raises(signals.Interrupted) as ended, signals.listening():
        signal.raise_signal(signal.SIGTERM)
    assert ended.value.code == 143
    with signals.listening():
        signals.poll()
        signal.raise_signal(signal.SIGINT)
        assert signals.requested() == signal.SIGINT


def test_interface__of_several_nodes_is_never_loopback(monkeypatch):
    found = network.interface_towards("127.0.0.1")
    assert found not in ("lo", "lo0")
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        monkeypatch.setenv(name, "the_users")
    config = OmegaConf.create({"DISTRIBUTED": {"NUM_NODES": 2, "RUN_ID": "localhost:1"}})
    network.choose_interface(config)
    assert os.environ["GLOO_SOCKET_IFNAME"] == "the_users"


def test_spin__keeps_what_the_user_set(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch")
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    launch.spin_shortly()
    assert "GOMP_SPINCOUNT" not in os.environ
