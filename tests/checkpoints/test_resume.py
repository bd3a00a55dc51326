"""The newest checkpoint that can be resumed from: those that cannot are passed by."""

import os

import pytest
import torch

from pirl_plugin.checkpoints.resume import find_newest
from pirl_plugin.checkpoints.shards import save_shards

NAN = torch.tensor([1.0, float("nan")])


def write(folder, name, **content):
    """A checkpoint of the host with next to nothing in it."""
    least = {"classy_state_dict": {}, "loss": {}, "iteration": 5, "train_phase_idx": 0}
    torch.save({**least, "phase_idx": 0, **content}, folder / name)
    return str(folder / name)


@pytest.mark.parametrize(
    ("content", "name"),
    [
        ({"classy_state_dict": {"base_model": {"weight": NAN}}}, "weight"),
        ({"classy_state_dict": {"optimizer": {"optim": {"momentum": NAN}}}}, "optim.momentum"),
        ({"loss": {"bank.rows": NAN}}, "bank.rows"),
    ],
)
def test_resume__passes_by_nan(content, name, tmp_path):
    good = write(tmp_path, "model_phase0.torch")
    write(tmp_path, "model_phase1.torch", iteration=10, **content)
    found = find_newest(tmp_path)
    assert str(found.path) == good
    assert f"found NaN or infinities in 1 tensors ({name})" in found.skipped["model_phase1.torch"]


def test_resume__passes_by_damaged_banks(tmp_path):
    good = write(tmp_path, "model_phase0.torch")
    loss = {"norm_constant": torch.tensor(1.0), "_extra_state": {"step": 15}}
    write(tmp_path, "model_phase2.torch", iteration=15, loss=loss)
    found = find_newest(tmp_path)
    assert str(found.path) == good
    bank = tmp_path / "memory_bank" / "step_15"
    assert found.skipped["model_phase2.torch"] == (
        f"its memory bank {bank} is not there: bring it along"
    )
    save_shards({"rows": torch.ones(4, 2)}, bank, needed=1)
    assert find_newest(tmp_path).path.name == "model_phase2.torch"
    os.truncate(bank / "__0_0.distcp", 10)
    assert (
        "__0_0.distcp has 10 bytes and not" in find_newest(tmp_path).skipped["model_phase2.torch"]
    )
