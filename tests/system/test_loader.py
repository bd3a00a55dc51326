"""What a loader's worker processes do when they are killed, and what a wait for images names."""

import os
import signal
import time

import pytest
import torch
from torch.utils.data import DataLoader, get_worker_info

from pirl_plugin.images.sources import open_source
from pirl_plugin.system import loader
from pirl_plugin.system.loader import LoaderError, WatchedBatches, wait_for_images
from pirl_plugin.system.watcher import watching
from tests.helpers.images import save_grey


class KillsItsWorker:
    def __init__(self, number):
        self.number = number

    def __len__(self):
        return 8

    def __getitem__(self, row):
        if row == 5:
            os.kill(os.getpid(), self.number)
        return torch.zeros(1)


def batches_of(data, workers=1):
    batches = DataLoader(data, 2, num_workers=workers, worker_init_fn=loader.start_worker)
    return WatchedBatches(batches, lambda: wait_for_images([]))


@pytest.mark.parametrize(
    ("number", "cause"),
    [(signal.SIGKILL, "SIGKILL, .* memory"), (signal.SIGBUS, "SIGBUS, .* /dev/shm")],
)
def test_worker__that_is_killed_is_the_cause(number, cause):
    with watching(), pytest.raises(LoaderError, match=f"loader process was ended by {cause}"):
        list(batches_of(KillsItsWorker(number)))


def test_worker__that_is_killed_is_the_cause_if_torch_says_so_meanwhile(monkeypatch):
    """torch's handler of SIGCHLD raises wherever the main thread is, also while it waits."""

    def wait_for_end(workers):
        time.sleep(0.5)
        raise RuntimeError("DataLoader worker is killed by signal")

    monkeypatch.setattr(loader, "_wait_for_end", wait_for_end)
    with watching(), pytest.raises(LoaderError, match="loader process was ended by SIGKILL"):
        list(batches_of(KillsItsWorker(signal.SIGKILL)))


def test_shared_memory__that_is_nearly_full_is_named(monkeypatch):
    class Fails(KillsItsWorker):
        def __getitem__(self, row):
            raise RuntimeError("any words")

    with pytest.raises(RuntimeError, match="any words"):
        list(batches_of(Fails(0)))
    monkeypatch.setattr(loader, "_LITTLE_MEMORY", 2**60)
    with pytest.raises(LoaderError, match=r"any words; /dev/shm, .* MiB left: .*--shm-size"):
        list(batches_of(Fails(0)))


def test_wait__names_the_image_that_a_worker_reads(tmp_path):
    for row in range(3):
        save_grey(tmp_path / f"{row}.png")
    source = open_source(tmp_path)

    class Watches:
        def __len__(self):
            return 3

        def __getitem__(self, row):
            with source.reading(row):
                workers = (source._rows_being_read == row).nonzero()[:, 0].tolist()
            return torch.tensor(workers == [1 + get_worker_info().id])

    assert torch.cat(list(batches_of(Watches()))).all()
    assert source.being_read() == []
    with source.reading(2):
        text = wait_for_images([source], 3, "KEY").explain()
    assert text.startswith(f"no image was read for 3 minutes (KEY): reading {tmp_path}/2.png does")
