"""The newest loadable checkpoint, and which checkpoints are kept."""

import torch
from vissl.config import AttrDict

from pirl_plugin.checkpoints.read import SECTION
from pirl_plugin.method.sharded_bank import ShardedMemoryBank
from pirl_plugin.vissl.resume.folder import (
    Keep,
    RunFolder,
    begin_extraction,
    find_newest,
    shards_of_step,
)
from pirl_plugin.vissl.resume.record import Record
from pirl_plugin.vissl.sections import RECORD


def write(folder, name, iteration, bank=None, **content):
    """Write a nearly empty VISSL checkpoint, with shards of a bank; return the step."""
    section = {"config": '{"LOSS": {"name": "pirl_loss"}}'}
    if bank is not None:
        section["shards"] = bank.save(folder / shards_of_step(iteration))
    content = {
        "classy_state_dict": {"hooks": {SECTION: section}},
        "loss": {"_extra_state": {"step": iteration}},
        "iteration": iteration,
        "iteration_num": iteration,
        "phase_idx": 0,
        "train_phase_idx": 0,
        "padding": torch.rand(1000),
        **content,
    }
    torch.save({key: part for key, part in content.items() if part is not None}, folder / name)
    return iteration


def names(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_newest__is_by_completed_steps_then_epoch_end(tmp_path):
    assert find_newest(tmp_path / "none").path is None
    order = ["phase0", "iteration12", "iteration20", "phase1", "final_checkpoint_phase2"]
    for name, iteration in zip(order, (10, 12, 20, 20, 30), strict=True):
        write(tmp_path, f"model_{name}.torch", iteration)
    for nth, name in enumerate(reversed(order), 1):
        found = find_newest(tmp_path, nth)
        assert found.path == tmp_path / f"model_{name}.torch"
        assert found.is_final == ("final" in name)
    assert find_newest(tmp_path, skip_final=True).path == tmp_path / "model_phase1.torch"
    assert find_newest(tmp_path, 99).path == tmp_path / "model_phase0.torch"


def test_damaged__is_named_and_skipped(tmp_path):
    for phase in range(4):
        write(tmp_path, f"model_phase{phase}.torch", 10 * phase)
    (tmp_path / "model_phase3.torch").write_bytes(b"")
    flipped = bytearray((tmp_path / "model_phase2.torch").read_bytes())
    flipped[len(flipped) // 2] ^= 1
    (tmp_path / "model_phase2.torch").write_bytes(flipped)
    torch.save({"model": {}}, tmp_path / "model_phase1.torch")
    found = find_newest(tmp_path)
    assert found.path == tmp_path / "model_phase0.torch"
    assert sorted(found.skipped) == [f"model_phase{phase}.torch" for phase in (1, 2, 3)]
    assert "does not match its checksum" in found.skipped["model_phase2.torch"]


def test_shards__count_as_damaged_if_mixed_or_corrupted(tmp_path):
    bank = ShardedMemoryBank(20, 4)
    for phase in range(3):
        bank.rows += 1
        write(tmp_path, f"model_phase{phase}.torch", 10 * phase, bank)
    assert find_newest(tmp_path).path == tmp_path / "model_phase2.torch"
    newest = tmp_path / shards_of_step(20) / "rank_0_of_1.torch"
    other = tmp_path / shards_of_step(10) / "rank_0_of_1.torch"
    newest.write_bytes(other.read_bytes())
    flipped = bytearray(other.read_bytes())
    flipped[len(flipped) // 2] ^= 1
    other.write_bytes(flipped)
    found = find_newest(tmp_path)
    assert found.path == tmp_path / "model_phase0.torch"
    assert all("does not match its checksum" in why for why in found.skipped.values())


def test_keeping__keeps_last_every_nth_and_final(tmp_path):
    write(tmp_path, "model_phase9.torch", 90)  # from another run
    folder, bank = (
        RunFolder(tmp_path, Keep(KEEP_LAST=2, KEEP_EVERY=3), {}),
        ShardedMemoryBank(20, 4),
    )
    for phase in range(6):
        name = f"model_{'final_checkpoint_' if phase == 5 else ''}phase{phase}.torch"
        folder.add(name, write(tmp_path, name, 10 * phase + 10, bank))
        folder.remove_old()
        if phase == 3:
            name = "model_iteration45.torch"
            folder.add(name, write(tmp_path, name, 45, bank))
            folder.remove_old()
    kept = {"phase0": 10, "phase3": 40, "phase4": 50, "final_checkpoint_phase5": 60}
    assert names(tmp_path) == sorted(
        ["model_phase9.torch"]
        + [f"model_{name}.torch" for name in kept]
        + [f"memory_bank/step_{step}/rank_0_of_1.torch" for step in kept.values()]
    )


def test_resumed_run__removes_only_its_own_checkpoints(tmp_path):
    bank = ShardedMemoryBank(20, 4)
    names = [f"model_phase{phase}.torch" for phase in range(3)]
    for phase, name in enumerate(names):
        write(tmp_path, name, 10 * phase, bank)
    planted = {"../run": None, "log.txt": None}
    folder = RunFolder(tmp_path, Keep(KEEP_LAST=1), {names[1]: 10, **planted})
    assert list(folder.saved) == [names[1]]
    folder.add("model_iteration15.torch", write(tmp_path, "model_iteration15.torch", 15, bank))
    folder.remove_old()
    left = {path.name for path in tmp_path.glob("*.torch")}
    assert left == {"model_iteration15.torch", names[0], names[2]}


def test_shards__stay_while_either_checkpoint_of_a_step_exists(tmp_path):
    """A run that saves in mid-epoch after the last step saves again at the end of the epoch."""
    bank = ShardedMemoryBank(20, 4)
    folder = RunFolder(tmp_path, Keep(KEEP_LAST=1), {})
    for name in ("model_iteration10.torch", "model_phase0.torch"):
        folder.add(name, write(tmp_path, name, 10, bank))
        folder.remove_old()
    assert names(tmp_path) == ["memory_bank/step_10/rank_0_of_1.torch", "model_phase0.torch"]
    assert find_newest(tmp_path).path == tmp_path / "model_phase0.torch"


def test_checkpoint__from_another_program_or_incomplete_is_skipped(tmp_path):
    write(tmp_path, "model_phase0.torch", 10)
    write(tmp_path, "model_phase1.torch", 20, classy_state_dict={})
    write(tmp_path, "model_phase2.torch", 30, loss=None)
    point = find_newest(tmp_path)
    assert point.path == tmp_path / "model_phase0.torch"
    assert point.skipped == {
        "model_phase1.torch": "this plugin did not write it, so a run cannot resume from it",
        "model_phase2.torch": "it has no loss, so a run cannot resume from it",
    }


def test_extraction__reuses_nothing_from_earlier_run(tmp_path):
    costs = ["AP_cls0_cost1.0.npy", "chosen_cost.npy", "cls0_cost1.0.pickle", "crossval_ap.npy"]
    kept = ["rank0_chunk0_test_heads_features.npy", "record.json", "train_config.yaml"]
    config = AttrDict({"EXTRACT_FEATURES": {"OUTPUT_DIR": ""}})
    config.update({"TEST_ONLY": False, "TEST_MODEL": False})
    config[RECORD] = Record("{}", weights={}, origins={})
    (tmp_path / "res5").mkdir()
    for again, expected in ((False, [*costs, *kept]), (True, kept)):
        for name in [*costs, "test_ap.npy"]:
            (tmp_path / "res5" / name).touch()
        for name in [kept[0], "rank0_chunk0_train_heads_features.npy"]:
            (tmp_path / name).touch()
        config.SVM = AttrDict({"force_retrain": again})
        begin_extraction(config, tmp_path)
        assert sorted(file.name for file in tmp_path.rglob("*.*")) == sorted(expected)
