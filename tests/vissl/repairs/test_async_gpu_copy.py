"""Copying a batch to a GPU during the previous batch's step."""

import contextlib

import pytest
import torch
from classy_vision.dataset import dataloader_async_gpu_wrapper
from torch.utils.data import DataLoader


class Stream:
    """A GPU stream that records commands in order."""

    def __init__(self, name, events):
        self.name, self.events = name, events

    def wait_stream(self, other):
        self.events.append(f"{self.name} waits for {other.name}")


@pytest.fixture
def events(monkeypatch):
    """Fake the GPU as far as VISSL's loader uses it, and record its commands."""
    events = []
    main = Stream("main", events)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "Stream", lambda: Stream("copies", events))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: main)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    monkeypatch.setattr(
        dataloader_async_gpu_wrapper,
        "recursive_copy_to_gpu",
        lambda batch, non_blocking: events.append(f"copy {batch}") or batch,
    )
    return events


def test_copies__wait_for_step_reading_the_old_data(events):
    wrapper = dataloader_async_gpu_wrapper.DataloaderAsyncGPUWrapper
    for batch in wrapper(DataLoader(["a", "b", "c"], batch_size=None)):
        events.append(f"step {batch}")
    assert events[:10] == [
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
