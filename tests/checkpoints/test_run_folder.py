"""What stays of a run's checkpoints, and that nothing else is ever removed."""

import json
import shutil

import pytest
import torch

from pirl_plugin.checkpoints.run_folder import LEDGER, MANIFEST, Keep, RunFolder


def save(run, number, *, phase=True, final=False, bank=False):
    """Epochs of ten steps."""
    kind = "phase" if phase else "iteration"
    name = f"model_{'final_checkpoint_' if final else ''}{kind}{number}.torch"
    iteration = 10 * (number + 1) if phase else number
    torch.save({"iteration": iteration, "name": name}, run.folder / name)
    folders = (f"memory_bank/step_{iteration}",) if bank else ()
    for folder in folders:
        (run.folder / folder).mkdir(parents=True, exist_ok=True)
        (run.folder / folder / MANIFEST).write_text(folder)
    run.record(name, iteration, number if phase else None, final, folders)
    return name


def left(folder):
    return {path.name for path in folder.glob("model_*")}


@pytest.mark.parametrize(
    ("keep", "expected"),
    [
        (Keep(), {"phase5", "iteration65"}),
        (Keep(KEEP_LAST=1), {"iteration65"}),
        (Keep(KEEP_LAST=1, KEEP_EVERY=2), {"phase0", "phase2", "phase4", "iteration65"}),
        (Keep(KEEP_LAST="all"), {f"phase{i}" for i in range(6)} | {"iteration65"}),
    ],
)
def test_record__keeps_the_last_and_every_mth(tmp_path, keep, expected):
    run = RunFolder(tmp_path, keep)
    for phase in range(6):
        save(run, phase)
    save(run, 65, phase=False)
    assert left(tmp_path) == {f"model_{name}.torch" for name in expected}


def test_record__removes_nothing_that_the_run_did_not_write(tmp_path):
    users = tmp_path / "model_phase0.torch"
    torch.save({}, users)
    run = RunFolder(tmp_path, Keep(KEEP_LAST=1))
    for phase in (1, 2):
        save(run, phase)
    (tmp_path / "model_phase2.torch").write_bytes(b"the user's now")
    save(run, 3)
    save(run, 4)
    assert left(tmp_path) == {f"model_phase{i}.torch" for i in (0, 2, 4)}


def test_run__that_resumes_goes_on_pruning(tmp_path):
    run = RunFolder(tmp_path, Keep())
    save(run, 0)
    resumed = tmp_path / save(run, 1)
    save(RunFolder(tmp_path, Keep(), resumed), 2)
    assert left(tmp_path) == {"model_phase1.torch", "model_phase2.torch"}


@pytest.mark.parametrize("resumed", [None, "model_phase7.torch", "model_phase1.torch"])
def test_run__from_elsewhere_leaves_the_former_runs_files(tmp_path, resumed):
    former = RunFolder(tmp_path, Keep())
    save(former, 0)
    save(former, 1)
    if resumed:
        torch.save({"copied": "here"}, tmp_path / resumed)
    run = RunFolder(tmp_path, Keep(KEEP_LAST=1), tmp_path / resumed if resumed else None)
    for phase in (2, 3):
        save(run, phase)
    assert left(tmp_path) >= {"model_phase0.torch", "model_phase1.torch", "model_phase3.torch"}
    assert "model_phase2.torch" not in left(tmp_path)


def test_record__removes_steps_that_the_run_went_back_before(tmp_path):
    run = RunFolder(tmp_path, Keep())
    resumed = tmp_path / save(run, 0)
    save(run, 1)  # damaged, say
    save(RunFolder(tmp_path, Keep(), resumed), 15, phase=False)
    assert left(tmp_path) == {"model_phase0.torch", "model_iteration15.torch"}


def test_record__keeps_the_final_one_and_shards_with_their_checkpoints(tmp_path):
    run = RunFolder(tmp_path, Keep())
    for phase in range(3):
        save(run, phase, bank=True)
    save(run, 3, final=True, bank=True)
    assert left(tmp_path) == {"model_phase2.torch", "model_final_checkpoint_phase3.torch"}
    assert {p.name for p in (tmp_path / "memory_bank").iterdir()} == {"step_30", "step_40"}


def test_record__keeps_shards_that_another_checkpoint_of_their_step_needs(tmp_path):
    run = RunFolder(tmp_path, Keep(KEEP_LAST=1))
    save(run, 10, phase=False, bank=True)
    save(run, 0, bank=True)  # the epoch's end, at the same step
    assert left(tmp_path) == {"model_phase0.torch"}
    assert {p.name for p in (tmp_path / "memory_bank").iterdir()} == {"step_10"}


@pytest.mark.parametrize("damage", ["", "{", '{"written": {"../x": {}}}', "[]"])
def test_ledger__that_is_damaged_keeps_everything(tmp_path, damage, caplog):
    resumed = tmp_path / save(RunFolder(tmp_path, Keep()), 0)
    (tmp_path / LEDGER).write_text(damage)
    save(RunFolder(tmp_path, Keep(KEEP_LAST=1), resumed), 1)
    assert left(tmp_path) == {"model_phase0.torch", "model_phase1.torch"}
    assert "the checkpoints in its folder all stay" in caplog.text


def test_ledger__names_nothing_outside_the_folder(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    outside = tmp_path / "memory_bank"
    outside.mkdir()
    run = RunFolder(folder, Keep())
    resumed = folder / save(run, 0)
    ledger = json.loads((folder / LEDGER).read_text())
    ledger["written"][resumed.name]["folders"] = {"../memory_bank": "none"}
    (folder / LEDGER).write_text(json.dumps(ledger))
    save(RunFolder(folder, Keep(KEEP_LAST=1), resumed), 1)
    assert outside.exists()
    shutil.rmtree(outside)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"KEEP_LAST": 0}, "CHECKPOINT.PIRL.KEEP_LAST = 0: expected a number from 1, or all"),
        ({"KEEP_LAST": "some"}, "KEEP_LAST = 'some'"),
        ({"KEEP_EVERY": -1}, "CHECKPOINT.PIRL.KEEP_EVERY = -1: expected a number of epochs"),
        ({"EVERY_MINUTES": "often"}, "CHECKPOINT.PIRL.EVERY_MINUTES = 'often': expected minutes"),
        ({"EVERY_MINUTES": float("nan")}, "EVERY_MINUTES = nan"),
    ],
)
def test_keep__refuses_what_means_nothing(values, message):
    with pytest.raises(ValueError, match=message):
        Keep(**values)


def test_run__that_was_killed_before_it_recorded_goes_on_pruning(tmp_path):
    run = RunFolder(tmp_path, Keep())
    saved = [save(run, phase) for phase in range(2)]
    run.announce("model_phase2.torch")
    torch.save({}, tmp_path / "model_phase2.torch")  # killed here
    run = RunFolder(tmp_path, Keep(), tmp_path / "model_phase2.torch")
    run.record("model_phase2.torch", 30, 2)
    assert left(tmp_path) == {saved[1], "model_phase2.torch"}


def test_orphans__are_the_shards_whose_checkpoint_was_never_written(tmp_path):
    run = RunFolder(tmp_path, Keep())
    resumed = tmp_path / save(run, 0, bank=True)
    banks = tmp_path / "memory_bank"
    for name in ("step_12", "step_99", ".unfinished.step_14"):
        (banks / name).mkdir()
    for name in ("step_10", "step_12"):
        run.announce(f"memory_bank/{name}")
    run.announce("model_iteration12.torch")  # killed here
    RunFolder(tmp_path, Keep(), resumed).remove_orphans()
    assert {path.name for path in banks.iterdir()} == {"step_10", "step_99"}  # one is the user's


def test_orphans__are_none_of_a_checkpoint_that_was_written_and_not_yet_recorded(tmp_path):
    run = RunFolder(tmp_path, Keep())
    resumed = tmp_path / save(run, 0)
    (tmp_path / "memory_bank" / "step_20").mkdir(parents=True)
    run.announce("memory_bank/step_20")
    run.announce("model_phase1.torch")
    torch.save({}, tmp_path / "model_phase1.torch")  # killed here
    RunFolder(tmp_path, Keep(), resumed).remove_orphans()
    assert (tmp_path / "memory_bank" / "step_20").is_dir()
