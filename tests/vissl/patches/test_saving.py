"""Faults while a run of the unmodified host saves: it goes on from the newest good checkpoint.

``PIRL_FAULTS=N PIRL_FAULTS_SEED=S`` set how many runs are killed at changes of files, and at which.
"""

import json
import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from pirl_plugin.checkpoints.verify import verify
from pirl_plugin.sharded_bank import ShardedMemoryBank
from tests.helpers import faults
from tests.helpers.host_runs import ELSEWHERE, run, settings

FINAL = "model_final_checkpoint_phase2.torch"
# The rate changes once an epoch, so that going on in mid-epoch must find it again.
RATE = [
    "config.OPTIMIZER.param_schedulers.lr.name=cosine",
    "config.OPTIMIZER.param_schedulers.lr.start_value=0.02",
    "config.OPTIMIZER.param_schedulers.lr.end_value=0.001",
    "config.OPTIMIZER.param_schedulers.lr.update_interval=epoch",
]
CHANGES = int(os.environ.get("PIRL_FAULTS", "2"))
SEED = int(os.environ.get("PIRL_FAULTS_SEED", "0"))
ALL = "config.CHECKPOINT.PIRL.KEEP_LAST=all"


def train(data, out, *overrides, fault=None, **options):
    """Three epochs of five steps in one process, with a fault where one is named."""
    if placement := options.pop("placement", None):
        overrides = (*overrides, f"config.LOSS.pirl_loss.bank.placement={placement}")
    launched = {key: options.pop(key) for key in ("processes", "workers") if key in options}
    environment = {"PYTHONPATH": str(Path(faults.__path__[0])), **(fault or {})}
    options.setdefault("check", fault is None)
    command = [*settings(data, out, epochs=3, **launched), *RATE, *overrides]
    return run(*command, environment=environment, **options)


@pytest.fixture(scope="module")
def whole(image_folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("whole")
    train(image_folder, out, ALL)
    return out


def tensors(content, name=""):
    if isinstance(content, torch.Tensor):
        yield name, content
    elif isinstance(content, dict):
        for key, value in content.items():
            yield from tensors(value, f"{name}.{key}")
    elif isinstance(content, list):
        for key, value in enumerate(content):
            yield from tensors(value, f"{name}.{key}")


def assert_same(out, whole):
    """The final checkpoints hold the same bits, and count the same."""
    found, expected = verify(out / FINAL), verify(whole / FINAL)
    for (name, tensor), (_, other) in zip(tensors(found), tensors(expected), strict=True):
        assert torch.equal(tensor.nan_to_num(), other.nan_to_num()), name
    counts = ("phase_idx", "train_phase_idx", "iteration", "iteration_num")
    assert [found[key] for key in counts] == [expected[key] for key in counts]
    states = [content["classy_state_dict"] for content in (found, expected)]
    assert states[0]["num_updates"] == states[1]["num_updates"]
    assert (
        states[0]["optimizer"]["optim"]["param_groups"]
        == (states[1]["optimizer"]["optim"]["param_groups"])
    )


def names(out):
    return {path.name for path in out.iterdir() if path.name.startswith(("model", ".", "check"))}


def test_kill_while_saving__goes_on_from_the_checkpoint_before(whole, image_folder, tmp_path):
    for nth in (2, 2):  # in model_phase1, then in the final one
        killed = train(image_folder, tmp_path, fault={"FAULT_IN_SAVE": str(nth)})
        assert killed.returncode == -9
        assert sum(name.startswith(".unfinished") for name in names(tmp_path)) == 1
    result = train(image_folder, tmp_path)
    assert "already succeeded" not in result.stdout
    assert_same(tmp_path, whole)
    # The newest two stay, and nothing half written.
    assert names(tmp_path) == {"checkpoint.torch", "checkpoints.json", "model_phase1.torch", FINAL}
    # A command with other settings is refused, and leaves what was trained as it is.
    before = (tmp_path / "train_config.yaml").read_text()
    other = train(image_folder, tmp_path, "config.LOSS.pirl_loss.temperature=0.5", check=False)
    assert other.returncode == 1
    assert "temperature = 0.5: expected 0.2, with which the run" in other.stderr
    assert (tmp_path / "train_config.yaml").read_text() == before


def test_damaged_checkpoints__are_named_and_passed_by(whole, image_folder, tmp_path):
    shutil.copytree(whole, tmp_path, symlinks=True, dirs_exist_ok=True)
    (tmp_path / FINAL).write_bytes(b"")
    flipped = bytearray((tmp_path / "model_phase1.torch").read_bytes())
    flipped[len(flipped) // 2] ^= 1
    (tmp_path / "model_phase1.torch").write_bytes(flipped)
    result = train(image_folder, tmp_path)
    going_on = f"going on from {tmp_path}/model_phase0.torch"
    assert f"Skipped {tmp_path}/{FINAL}: it is empty; {going_on}" in result.stdout
    assert "has another check sum than when saved; " + going_on in result.stdout
    assert_same(tmp_path, whole)


def test_refused_run__leaves_the_folder_as_it_was(whole, image_folder, tmp_path):
    shutil.copytree(whole, tmp_path, symlinks=True, dirs_exist_ok=True)
    (tmp_path / FINAL).unlink()
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.yaml")}
    refused = train(image_folder, tmp_path, "config.MODEL.TRUNK.PIRL_RESNET.DEPTH=18", check=False)
    assert refused.returncode != 0
    assert "PIRL_RESNET.DEPTH = 18: expected 10, as in" in refused.stderr
    assert before == {path.name: path.read_bytes() for path in tmp_path.glob("*.yaml")}
    assert list(before) == ["train_config.yaml"]


@pytest.fixture
def small_disk(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=30m", "none", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small disk needs rights")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=False)


def test_full_disk__is_one_sentence_and_the_run_goes_on(whole, image_folder, small_disk):
    out = small_disk / "out"
    full = train(image_folder, out, check=False)  # room for two checkpoints of 12 MB, not three
    assert full.returncode == 65  # the same command would end the same way
    assert f"pirl_plugin: {out}/{FINAL} was not written" in full.stderr
    assert f"too little space on the disk {small_disk} (" in full.stderr
    assert "it needs 12 MB" in full.stderr
    assert "Traceback" not in full.stderr
    subprocess.run(["mount", "-o", "remount,size=60m", str(small_disk)], check=True)
    result = train(image_folder, out)
    assert f"Resume from file: {out}/model_phase1.torch" in result.stdout
    assert_same(out, whole)


def test_stop_in_mid_epoch__resumes_bit_for_bit(whole, image_folder, tmp_path):
    """A kill in mid-epoch, SIGTERM in an epoch's last step, in a relative folder that moves."""
    place = Path(os.path.relpath(tmp_path, ELSEWHERE))
    every_two = "config.CHECKPOINT.CHECKPOINT_ITER_FREQUENCY=2"
    killed = train(image_folder, place / "a", every_two, fault={"FAULT_IN_STEP": "8:SIGKILL"})
    assert killed.returncode == -9
    assert "Errno 17" not in killed.stdout
    (tmp_path / "a").rename(tmp_path / "b")
    assert os.readlink(tmp_path / "b" / "checkpoint.torch") == "model_iteration6.torch"
    verify(tmp_path / "b" / "checkpoint.torch")
    stopped = train(image_folder, place / "b", fault={"FAULT_IN_STEP": "4:SIGTERM"})
    assert stopped.returncode == 143, stopped.stdout[-2000:] + stopped.stderr[-2000:]
    assert "stopped by SIGTERM after step 10, which is saved in" in stopped.stdout
    assert "Traceback" not in stopped.stderr
    result = train(image_folder, place / "b")
    assert "model_iteration10.torch" in result.stdout
    assert_same(tmp_path / "b", whole)


@pytest.mark.parametrize(
    ("fault", "status", "counted"),
    [("5:SIGKILL", -9, 24), ("6:SIGTERM", 143, 48)],  # after an epoch, and after its last step
)
def test_resume__with_a_smaller_batch_ends_where_the_schedule_does(
    fault, status, counted, image_folder, tmp_path
):
    """An epoch of 20 images is counted as 3 batches of 8, and then as 10 of 2."""
    batch = "config.DATA.TRAIN.BATCHSIZE_PER_REPLICA="
    killed = train(image_folder, tmp_path, f"{batch}8", fault={"FAULT_IN_STEP": fault})
    assert killed.returncode == status
    result = train(image_folder, tmp_path, f"{batch}2")
    assert f"The checkpoint counts {counted} images" in result.stdout
    assert verify(tmp_path / FINAL)["classy_state_dict"]["num_updates"] == 60


def test_state_that_is_not_finite__is_never_saved(whole, image_folder, tmp_path):
    """A rate that overflows in the last step of an epoch, whose loss was fine."""
    shutil.copy(whole / "model_phase0.torch", tmp_path)
    before = (tmp_path / "model_phase0.torch").read_bytes()
    result = train(image_folder, tmp_path, fault={"FAULT_IN_STEP": "5:NAN"})
    assert result.returncode == 65  # the same command would end the same way
    assert f"pirl_plugin: {tmp_path}/model_phase1.torch was not saved: expected" in result.stderr
    assert "the checkpoint before it is intact" in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "model_phase1.torch").exists()
    assert (tmp_path / "model_phase0.torch").read_bytes() == before


@pytest.fixture(scope="module")
def whole_sharded(image_folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("whole_sharded")
    train(image_folder, out, ALL, placement="sharded")
    return out


@pytest.mark.slow
@pytest.mark.parametrize("nth", range(CHANGES))
def test_kill_at_a_change_of_a_file__is_as_if_nothing_had_happened(
    nth, whole_sharded, image_folder, tmp_path
):
    """Between shards and model, model and ledger, while pruning: the rest of it is removed."""
    change = random.Random(f"files {SEED} {nth}").randrange(20, 180)
    killed = train(
        image_folder,
        tmp_path,
        "config.CHECKPOINT.CHECKPOINT_ITER_FREQUENCY=2",  # steps that the run after saves not
        placement="sharded",
        fault={"FAULT_IN_FILES": f"{change}:{tmp_path}"},
    )
    assert killed.returncode == -9, change
    train(image_folder, tmp_path, placement="sharded")
    assert_same_bank(tmp_path, whole_sharded)
    written = json.loads((tmp_path / "checkpoints.json").read_text())["written"]
    assert {name for name in names(tmp_path) if name.startswith("model_")} == set(written), change
    banks = {folder for entry in written.values() for folder in entry["folders"]}
    found = {f"memory_bank/{path.name}" for path in (tmp_path / "memory_bank").iterdir()}
    assert found == banks, change


@pytest.mark.slow
def test_signal_to_the_launcher__reaches_ranks_that_share_a_bank(image_folder, tmp_path):
    """SIGUSR2 to the host's launcher; then the newest shards lose a file."""
    options = {"processes": 2, "workers": 1, "placement": "sharded"}
    whole, out = tmp_path / "whole", tmp_path / "out"
    train(image_folder, whole, ALL, **options)
    stopped = train(
        image_folder, out, ALL, fault={"FAULT_IN_STEP": "4:SIGUSR2:launcher"}, **options
    )
    assert stopped.returncode == 140, stopped.stdout[-2000:] + stopped.stderr[-2000:]
    assert "Traceback" not in stopped.stderr
    newest = max(out.glob("model_iteration*"))
    assert newest.name in ("model_iteration4.torch", "model_iteration5.torch")
    shutil.copytree(out, tmp_path / "other", symlinks=True)
    result = train(image_folder, out, **options)  # in mid-epoch
    assert f"Resume from file: {newest}" in result.stdout
    assert_same_bank(out, whole)
    (bank,) = (tmp_path / "other" / "memory_bank").glob(f"step_{newest.stem[15:]}")
    (bank / ".metadata").unlink()
    result = train(image_folder, tmp_path / "other", **options)
    assert f"{bank}/.metadata is missing; going on from" in result.stdout
    assert_same_bank(tmp_path / "other", whole)
    # The banks of the newest two checkpoints stay.
    assert len(list((tmp_path / "other" / "memory_bank").iterdir())) == 2


def assert_same_bank(out, whole):
    assert_same(out, whole)
    banks = [ShardedMemoryBank(20, 128), ShardedMemoryBank(20, 128)]
    steps = [int(path.name.removeprefix("step_")) for path in (whole / "memory_bank").iterdir()]
    for bank, folder in zip(banks, (out, whole), strict=True):
        bank.load(folder / "memory_bank" / f"step_{max(steps)}")
    assert torch.equal(banks[0].rows, banks[1].rows)
