"""Copying a batch to a GPU during the previous batch's step."""

import contextlib

import pytest
import torch
from classy_vision.dataset import dataloader_async_gpu_wrapper
from torch.utils.data import DataLoader


class Stream:
    """A GPU stream that records its commands in order."""

    def __init__(self, name, said):
        self.name, self.said = name, said

    def wait_stream(self, other):
        self.said.append(f"{self.name} waits for {other.name}")


@pytest.fixture
def said(monkeypatch):
    """A fake GPU with what VISSL's loader uses of it."""
    said = []
    main = Stream("main", said)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "Stream", lambda: Stream("copies", said))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: main)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    monkeypatch.setattr(
        dataloader_async_gpu_wrapper,
        "recursive_copy_to_gpu",
        lambda batch, non_blocking: said.append(f"copy {batch}") or batch,
    )
    return said


def test_copies__wait_for_step_reading_the_old_data(said):
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
        "copies waits for main",  # and thus for the step that reads a
        "copy c",
        "step b",
    ]
