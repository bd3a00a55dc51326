"""Killed loader workers, and messages about slow image reads."""

import multiprocessing
import os
import signal
import threading
import time

import pytest
import torch
from torch.utils.data import DataLoader, get_worker_info

from pirl_plugin.images.opening import open_source
from pirl_plugin.system import loader
from pirl_plugin.system.failures import FailedProcess
from pirl_plugin.system.waits import Wait
from pirl_plugin.system.watcher import Interrupted, watching
from tests.helpers.images import save_gray


class KillsItsWorker:
    def __len__(self):
        return 8

    def __getitem__(self, row):
        if row == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.zeros(1)


def batches_of(data):
    # Other tests in this process may have changed the start method.
    return DataLoader(
        data,
        2,
        num_workers=1,
        worker_init_fn=loader.start_worker,
        multiprocessing_context="fork",
    )


def test_killed_worker__is_named_as_cause():
    """Its last batch is lost too; torch notices the end only when no batch is left."""
    cause = "a loader process was ended by SIGKILL"
    with pytest.raises(FailedProcess, match=cause), watching():
        with loader.reading(batches_of(KillsItsWorker()), Wait([], 1)) as batches:
            list(batches)


def test_worker__reports_unsendable_batch():
    """The parent process would wait forever for the batch."""
    locks = [threading.Lock()]
    batches = DataLoader(
        locks,
        collate_fn=list,
        num_workers=1,
        worker_init_fn=loader.start_worker,
        multiprocessing_context="fork",
        timeout=10,
    )
    with (
        pytest.raises(FailedProcess, match="cannot send images: cannot pickle '_thread"),
        loader.reading(batches, Wait([], 30)) as read,
    ):
        next(read)


def test_workers__end_before_error_leaves_the_block():
    """Even if a write in the main process fails: cleanup must not race with workers."""

    def fail():
        with loader.reading(batches_of(torch.zeros(100, 1)), Wait([], 1)) as batches:
            next(batches)
            (worker,) = set(multiprocessing.active_children()) - of_other_tests
            try:
                raise OSError("full disk")
            finally:
                workers.append(worker)

    workers = []
    of_other_tests = set(multiprocessing.active_children())
    with watching():
        with pytest.raises(OSError, match="full disk"):
            fail()
        assert not workers[0].is_alive()


def test_unwatched_worker__ends_with_torchs_signal():
    """Without a watcher, a worker with a hanging read must not outlive the user's process."""

    class Hangs(KillsItsWorker):
        def __getitem__(self, row):
            time.sleep(100)

    of_other_tests = set(multiprocessing.active_children())
    batches = iter(batches_of(Hangs()))
    (worker,) = set(multiprocessing.active_children()) - of_other_tests
    time.sleep(0.5)
    worker.terminate()
    worker.join(10)
    assert worker.exitcode is not None
    del batches


def test_signal__ends_wait_for_worker_at_once():
    class Hangs(KillsItsWorker):
        def __getitem__(self, row):
            time.sleep(100)

    batches = batches_of(Hangs())
    start = time.monotonic()
    threading.Timer(1, os.kill, (os.getpid(), signal.SIGTERM)).start()
    with pytest.raises(Interrupted), watching():
        next(iter(batches))
    assert time.monotonic() - start < 5  # torch would wait five seconds for the worker


def test_wait__names_image_being_read(tmp_path):
    for row in range(3):
        save_gray(tmp_path / f"{row}.png")
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
        text = Wait([source], 3, "KEY").sentence()
    assert text.startswith(f"no image was read for 3 minutes (KEY): reading {tmp_path}/2.png does")
