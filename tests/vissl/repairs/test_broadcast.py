"""Broadcasting a checkpoint between ranks."""

import os
import pickle

import torch

from tests.helpers.processes import run_in_processes


class Planted:
    """Calls a function when unpickled."""

    def __reduce__(self):
        return os.putenv, ("PIRL_PLANTED", "1")


def _broadcast(rank, world_size):
    """Return what a process receives, and its error for a file with code."""
    from classy_vision.generic.distributed_util import broadcast_object

    received = broadcast_object({"weights": torch.arange(1000), "step": 7} if rank == 0 else None)
    try:
        broadcast_object({"weights": Planted()} if rank == 0 else None)
    except pickle.UnpicklingError as error:
        return received, str(error)
    return received, ""


def test_broadcast_object__is_identical_and_executes_no_code():
    (first, _), (second, refused) = run_in_processes(_broadcast, 2)
    for received in (first, second):
        assert torch.equal(received["weights"], torch.arange(1000))
        assert received["step"] == 7
    assert "Weights only load failed" in refused


def test_broadcast_object__is_immediate_in_one_process():
    from classy_vision.generic.distributed_util import broadcast_object

    class Checkpoint:
        def __reduce__(self):
            raise AssertionError("saved, to be sent to nobody: 3 s for 48 MB")

    checkpoint = Checkpoint()
    assert broadcast_object(checkpoint) is checkpoint
