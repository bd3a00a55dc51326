"""The unmodified host's own script, run as a user would run it."""

import json
import math
import re
import shutil
import socket
import sys
import time

import pytest
import torch

from pirl_plugin.bank import MemoryBank
from pirl_plugin.evaluation.measures import LINE_KEY as KEY
from pirl_plugin.settings import NOT_INSTALLED
from pirl_plugin.sharded_bank import ShardedMemoryBank
from tests.helpers.host_runs import losses, run, settings, state


@pytest.fixture(scope="module")
def two_epochs(image_folder, tmp_path_factory):
    """Two processes with two workers each, two epochs without a stop."""
    out = tmp_path_factory.mktemp("whole")
    measured = "config.HOOKS.PIRL_MONITOR.share=1"  # each of these epochs, however short
    return out, run(*settings(image_folder, out, epochs=2, processes=2, workers=2), measured)


def test_host__trains_pirl_in_two_processes(two_epochs):
    out, result = two_epochs
    assert "pirl_plugin 0.1.0, VISSL 0.1.6" in result.stdout
    named = re.search("VISSL is patched: (.*)", (out / "log.txt").read_text())[1].split(", ")
    assert {"checkpoints written in place", "Kinetics400"} <= set(named)
    assert all(0 < loss < 50 for loss in losses(out).values())
    loss, _ = state(out)
    assert loss["bank.rows"].shape == (20, 128)
    torch.testing.assert_close(loss["bank.rows"].norm(dim=1), torch.ones(20))
    # 20 images / 2 processes / 4 = 3 steps an epoch
    assert loss["_extra_state"]["step"] == 6


def test_host__log_is_free_of_warnings(two_epochs):
    _, result = two_epochs
    noise = [
        line for line in (result.stdout + result.stderr).splitlines()
        if "Warning" in line
    ]  # fmt: skip
    assert noise == []


def test_monitor__is_in_the_log_and_its_knn_is_one_computed_outside(two_epochs, image_folder):
    out, _ = two_epochs
    lines = [json.loads(line) for line in (out / "stdout.json").read_text().splitlines()]
    lines = [line for line in lines if KEY in line]
    assert [(line["ep"], line["iter"]) for line in lines] == [(0, 2), (1, 5)]
    rows = state(out)[0]["bank.rows"]
    classes = [path.parent.name for path in sorted((image_folder / "train").rglob("*.jpg"))]
    cosines = (rows @ rows.T).fill_diagonal_(-1).tolist()
    correct = 0
    for row, scores in enumerate(cosines):
        votes = {"ants": 0.0, "bees": 0.0}
        nearest = sorted(range(20), key=lambda other: scores[other], reverse=True)[:19]
        for other in nearest:
            votes[classes[other]] += math.exp(scores[other] / 0.07)
        correct += max(votes, key=votes.get) == classes[row]
    assert lines[-1][KEY]["knn_top1"] == {"value": 100 * correct / 20, "chance": 50}
    log = (out / "log.txt").read_text()
    assert log.count("PIRL monitor, epoch 1, 20 of 20 rows: knn_top1: ") == 1


@pytest.mark.slow
def test_monitor__changes_no_bit(two_epochs, image_folder, tmp_path):
    without = "config.HOOKS.PIRL_MONITOR.enabled=false"
    run(*settings(image_folder, tmp_path, epochs=2, processes=2, workers=2), without)
    assert KEY not in (tmp_path / "stdout.json").read_text()
    (loss, trunk), (expected_loss, expected_trunk) = state(tmp_path), state(two_epochs[0])
    assert loss["_extra_state"] == expected_loss["_extra_state"]
    assert torch.equal(loss["bank.rows"], expected_loss["bank.rows"])
    for name, tensor in trunk.items():
        assert torch.equal(tensor, expected_trunk[name]), name


@pytest.mark.slow
def test_host__resumes_to_the_same_result(two_epochs, image_folder, tmp_path):
    whole, _ = two_epochs
    shutil.copy(whole / "model_phase0.torch", tmp_path)  # as if killed in the second epoch
    result = run(*settings(image_folder, tmp_path, epochs=2, processes=2, workers=2))
    assert "Loaded loss state from checkpoint" in result.stdout
    (loss, trunk), (expected_loss, expected_trunk) = state(tmp_path), state(whole)
    assert loss["_extra_state"] == expected_loss["_extra_state"]
    assert torch.equal(loss["bank.rows"], expected_loss["bank.rows"])
    for name, tensor in trunk.items():
        assert torch.equal(tensor, expected_trunk[name]), name


@pytest.mark.slow
def test_host__resumes_a_sharded_bank_in_three_processes(image_folder, tmp_path):
    sharded = ["config.LOSS.pirl_loss.bank.placement=sharded"]
    whole, resumed = tmp_path / "two", tmp_path / "three"
    run(*settings(image_folder, whole, epochs=1, processes=2), *sharded)
    (step,) = (whole / "memory_bank").iterdir()
    assert step.name == "step_3"
    shutil.copytree(whole / "memory_bank", resumed / "memory_bank")
    final = whole / "model_final_checkpoint_phase0.torch"
    shutil.copy(final, resumed / "model_phase0.torch")
    result = run(*settings(image_folder, resumed, epochs=2, processes=3), *sharded)
    assert "Loaded the memory bank's shards from" in result.stdout
    loss, _ = state(resumed)
    assert "bank.rows" not in loss
    assert loss["_extra_state"]["step"] == 3 + 2  # 20 images / 3 processes / 4
    # The shards together: one process reads what three wrote.
    bank = ShardedMemoryBank(20, 128)
    bank.load(resumed / "memory_bank" / "step_5")
    torch.testing.assert_close(bank.rows.norm(dim=1), torch.ones(20))
    assert bank.visited.all()


def test_train_command__does_what_the_hosts_script_does(image_folder, tmp_path):
    """Without the ``.pth``: the command installs the import hook itself, in spawned workers too."""
    overrides = settings(image_folder, tmp_path, epochs=1, processes=1, workers=1)
    command = [sys.executable, "-m", "pirl_plugin", "train"]
    result = run(*overrides, command=command, environment={"PIRL_PLUGIN_AUTOLOAD": "0"})
    assert "pirl_plugin 0.1.0, VISSL 0.1.6" in result.stdout
    assert state(tmp_path)[0]["_extra_state"]["step"] == 5


@pytest.mark.parametrize(
    ("placement", "parts"),
    [("replicated", 1), ("replicated", 2), pytest.param("sharded", 1, marks=pytest.mark.slow)],
)
def test_filled_bank__agrees_with_the_first_batch(placement, parts, image_folder, tmp_path):
    """Rows that agree with what moves them keep their norm of 1; beside random ones it is 0.71."""
    result = run(
        *settings(image_folder, tmp_path, epochs=1, processes=2),
        f"config.LOSS.pirl_loss.bank.placement={placement}",
        f"config.TRAINER.PIRL_MICRO_BATCHES={parts}",
        "config.LOG_FREQUENCY=1",
    )
    assert result.stdout.count("PIRL: filled the memory bank in ") == 1
    first, *later = re.findall(r"row norm: ([\d.]+); rows visited: 1.0000", result.stdout)
    assert first == "1.0000"
    assert len(later) == 2  # the epoch has all its batches


def test_train_command__runs_as_a_slurm_job(image_folder, tmp_path):
    """Through submitit, which runs the job on this machine where there is no SLURM."""
    overrides = [
        *settings(image_folder, tmp_path / "out", epochs=1),
        "config.SLURM.USE_SLURM=true",
        "config.SLURM.PARTITION=any",
        f"config.SLURM.LOG_FOLDER={tmp_path / 'logs'}",
        f"config.SLURM.PORT_ID={free_port()}",
    ]
    command = [sys.executable, "-m", "pirl_plugin", "train"]
    result = run(*overrides, command=command, environment={"PIRL_PLUGIN_AUTOLOAD": "0"})
    assert "SUBMITTED: " in result.stdout
    end = time.monotonic() + 180
    while not (logs := list((tmp_path / "logs").glob("*_result.pkl"))):
        assert time.monotonic() < end, "the job did not end"
        time.sleep(0.5)
    printed = logs[0].with_name(logs[0].name.replace("_result.pkl", "_log.out")).read_text()
    assert "PIRL: invariance: " in printed
    assert state(tmp_path / "out")[0]["_extra_state"]["step"] == 5


def free_port():
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


def test_host__counts_a_corrupt_image_and_finishes(image_folder, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(image_folder, data)
    broken = data / "train" / "ants" / "0.jpg"
    broken.write_bytes(broken.read_bytes()[:200])
    overrides = settings(data, tmp_path / "out", epochs=2, workers=2)
    result = run(*overrides)
    assert result.stderr.count(str(broken)) <= 1  # by a worker: not once an epoch or worker
    assert result.stdout.count(str(broken)) == 1  # in the log
    assert "1 files could not be read, and were left out" in result.stdout
    loss, _ = state(tmp_path / "out")
    untouched = MemoryBank(20, 128).rows
    moved = (loss["bank.rows"] != untouched).any(dim=1)
    assert moved.tolist() == [False] + [True] * 19  # its row alone was never updated


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["config=pretrain/pirl/nothing"], "pretrain/pirl/nothing"),
        (
            ["config=pretrain/pirl/quick_jigsaw", "config.DATA.TRAIN.DATA_PATHS=[nowhere]"],
            "nowhere is not a folder that exists",
        ),
    ],
)
def test_host__ends_bad_input_in_one_sentence(overrides, message, tmp_path):
    result = run(*overrides, f"config.CHECKPOINT.DIR={tmp_path}", check=False)
    assert result.returncode == 1
    assert message in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("command", ["train", "quickstart"])
def test_commands__say_how_to_install_a_missing_host(command):
    code = (
        f"import sys; sys.modules['vissl'] = None; sys.argv = ['pirl-plugin', '{command}'];"
        "from pirl_plugin.cli import main; main()"
    )
    result = run(command=[sys.executable, "-c", code], check=False)
    assert result.returncode == 1
    assert NOT_INSTALLED in result.stderr


def test_parts__say_how_to_install_a_missing_host():
    code = (
        "import sys; from importlib.abc import MetaPathFinder\n"
        "class Without(MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'classy_vision':\n"
        "            raise ModuleNotFoundError(name=name)\n"
        "sys.meta_path.insert(0, Without())\n"
        "import pirl_plugin.vissl.adapters.loss"
    )
    result = run(command=[sys.executable, "-c", code], check=False)
    message = f"ModuleNotFoundError: {NOT_INSTALLED}"
    assert result.stderr.strip().splitlines()[-1] == message
