"""Copies to a GPU in order, and gradients that the host reduces itself."""

from contextlib import nullcontext

import pytest
import torch
from classy_vision.dataset import dataloader_async_gpu_wrapper
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from vissl.utils import activation_checkpointing

from tests.helpers.processes import run_in_processes


class Stream:
    """Of a GPU: what it was told, in order."""

    def __init__(self, name, said):
        self.name, self.said = name, said

    def wait_stream(self, other):
        self.said.append(f"{self.name} waits for {other.name}")


@pytest.fixture
def said(monkeypatch):
    """A GPU as far as the host's loader sees one."""
    said = []
    main = Stream("main", said)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "Stream", lambda: Stream("copies", said))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: main)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(
        dataloader_async_gpu_wrapper,
        "recursive_copy_to_gpu",
        lambda batch, non_blocking: said.append(f"copy {batch}") or batch,
    )
    return said


def test_copies__wait_for_the_step_that_reads_what_they_overwrite(said):
    wrapper = dataloader_async_gpu_wrapper.DataloaderAsyncGPUWrapper
    for batch in wrapper(DataLoader(["a", "b", "c"], batch_size=None)):
        said.append(f"step {batch}")
    assert said[:10] == [
        "copies waits for main",
        "copy a",
        "main waits for copies",
        "copies waits for main",
        "copy b",
        "step a",
        "main waits for copies",
        "copies waits for main",  # and so for the step that reads a
        "copy c",
        "step b",
    ]


def _sync_by_hand(rank, world_size):
    model = torch.nn.BatchNorm1d(2)
    wrapped = DistributedDataParallel(model)
    model.running_mean.fill_(rank + 5)
    activation_checkpointing.manual_sync_params(wrapped)
    frozen = DistributedDataParallel(torch.nn.Linear(2, 2))  # without buffers
    activation_checkpointing.manual_sync_params(frozen)
    assert distributed.get_world_size() == world_size
    return model.running_mean.tolist()


def test_buffers__are_synchronised_by_hand():
    """``DISTRIBUTED.MANUAL_GRADIENT_REDUCTION``; torch has no ``_sync_params`` any more."""
    assert run_in_processes(_sync_by_hand, 2) == [[5, 5], [5, 5]]
