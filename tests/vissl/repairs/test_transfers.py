"""Loading a checkpoint on all ranks."""

import os
import pickle

import torch

from tests.helpers.processes import run_in_processes


class Planted:
    """Calls a function when unpickled."""

    def __reduce__(self):
        return os.putenv, ("PIRL_PLANTED", "1")


def _load(rank, world_size, folder):
    """Return the content of a checkpoint, and the error for a file with code."""
    from vissl.utils.checkpoint import CheckpointLoader

    load = CheckpointLoader.load_and_broadcast_checkpoint
    loaded = load(folder, f"{folder}/model.torch", torch.device("cpu"))
    try:
        load(folder, f"{folder}/planted.torch", torch.device("cpu"))
    except pickle.UnpicklingError as error:
        return loaded, str(error)
    return loaded, ""


def test_checkpoint__is_read_by_each_rank_and_executes_no_code(tmp_path):
    torch.save({"weights": torch.arange(1000), "step": 7}, tmp_path / "model.torch")
    torch.save({"weights": Planted()}, tmp_path / "planted.torch")
    for loaded, refused in run_in_processes(_load, 2, str(tmp_path)):
        assert torch.equal(loaded["weights"], torch.arange(1000))
        assert loaded["step"] == 7
        assert "Weights only load failed" in refused
