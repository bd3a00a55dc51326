"""How loader workers start and end, what they cannot receive, and messages about slow reads."""

import multiprocessing
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from torch.utils.data import get_worker_info

from pirl_plugin.images.opening import open_source
from pirl_plugin.system import loader
from pirl_plugin.system.failures import FailedProcess
from pirl_plugin.system.watcher import Interrupted, current, waiting, watching
from tests.helpers.images import save_gray
from tests.helpers.launched import gone, started


class Acts:
    """A data set that calls a function with the row for each item."""

    def __init__(self, act):
        self.act = act

    def __len__(self):
        return 8

    def __getitem__(self, row):
        return torch.tensor(self.act(row) or 0)


def kill_itself(row):
    if row == 5:
        os.kill(os.getpid(), signal.SIGKILL)


def stop_itself(row):
    os.kill(os.getpid(), signal.SIGSTOP)


def hang(row):
    time.sleep(100)


def process_id(row):
    return os.getpid()


def reading(act, **options):
    return loader.reading(Acts(act), 1, waiting, batch_size=2, **options)


@pytest.fixture(scope="module", autouse=True)
def _unwatched_server():
    """Started in a watched process, it would pass blocked signals to workers."""
    loader.prepare_workers(__name__, workers=1)


def children():
    return set(multiprocessing.active_children())


def test_killed_worker__is_named_as_cause():
    """Its last batch is lost too; torch notices the end only when no batch is left."""
    cause = "a loader process was ended by SIGKILL"
    with pytest.raises(FailedProcess, match=cause), watching(), reading(kill_itself) as batches:
        list(batches)


def lock(samples):
    return threading.Lock()


def test_worker__reports_unsendable_batch():
    """The parent process would wait forever for the batch."""
    cause = "cannot send images: cannot pickle '_thread"
    with (
        pytest.raises(FailedProcess, match=cause),
        reading(process_id, collate_fn=lock, timeout=60) as batches,
    ):
        next(batches)


def test_workers__end_before_error_leaves_the_block():
    """Even if a write in the main process fails: cleanup must not race with workers."""

    def fail():
        with reading(process_id) as batches:
            next(batches)
            workers.extend(children() - of_other_tests)
            raise OSError("full disk")

    workers = []
    of_other_tests = children()
    with watching():
        with pytest.raises(OSError, match="full disk"):
            fail()
        (worker,) = workers
        assert not worker.is_alive()


def test_unwatched_worker__ends_with_torchs_signal():
    """Without a watcher, a worker with a hanging read must not outlive the user's process."""
    of_other_tests = children()
    with reading(hang):
        (worker,) = children() - of_other_tests
        time.sleep(0.5)
        worker.terminate()
        worker.join(10)
        assert worker.exitcode is not None


KILLED = """
from tests.system.test_loader import hang, reading
with reading(hang) as batches:
    print("ready", flush=True)
    next(batches)
"""


@pytest.mark.slow
def test_worker__ends_with_killed_parent(tmp_path):
    """Even within a read. The fork server then ends too."""
    root = str(Path(__file__).parents[2])
    with started([], tmp_path, command=[sys.executable, "-c", KILLED], PYTHONPATH=root) as run:
        run.wait_for("ready")
        time.sleep(1)  # the worker reads
        assert len(run.group()) > 2
        run.process.kill()
        run.process.wait()
        assert gone(run)


def test_signal__ends_wait_for_worker_at_once():
    def wait():
        with watching(), reading(hang) as batches:
            threading.Timer(1, os.kill, (os.getpid(), signal.SIGTERM)).start()
            start.append(time.monotonic())
            next(batches)

    start = []
    with pytest.raises(Interrupted):
        wait()
    assert time.monotonic() - start[0] < 6  # torch would wait five seconds for the worker


def has_script(row):
    return hasattr(sys.modules["__main__"], "__file__")


def test_workers__share_neither_script_nor_process():
    """They would run a script without ``if __name__ == "__main__":`` again."""
    with reading(has_script) as batches:
        assert not torch.cat(list(batches)).any()
    with reading(process_id) as batches:
        assert os.getpid() not in torch.cat(list(batches))


class OfScript(Acts):
    """Like a class that a script or a notebook defines."""

    __module__ = "__main__"


@pytest.mark.parametrize("kind", ["lambda", "open file", "script", "tensors", "large"])
def test_data_set__is_read_without_workers_if_they_cannot_receive_it(kind, caplog, monkeypatch):
    data = Acts(process_id)
    reason = "cannot be pickled"
    if kind == "lambda":
        data = Acts(lambda row: os.getpid())
    elif kind == "open file":
        data.file = open(os.devnull)
    elif kind == "script":
        data = OfScript(process_id)
        monkeypatch.setattr(sys.modules["__main__"], "OfScript", OfScript, raising=False)
    elif kind == "tensors":
        data.tensors = list(torch.zeros(300, 1))
        reason = "contains 300 tensors"
    else:
        data.pixels = torch.zeros(1000).numpy()
        monkeypatch.setattr(loader, "_LARGEST_COPY", 3999)
        reason = "takes 0.0 GB of memory"
    with loader.reading(data, 2, waiting) as batches:
        assert set(torch.cat(list(batches)).tolist()) == {os.getpid()}
    (line,) = caplog.messages
    assert line.startswith("Images are read without worker processes: the data set ")
    assert reason in line


class Watches:
    """A data set that returns whether the source's table names the image that is being read."""

    def __init__(self, source):
        self.source = source

    def __len__(self):
        return 3

    def __getitem__(self, row):
        with self.source.reading(row):
            workers = (self.source._rows_being_read == row).nonzero()[:, 0].tolist()
        return torch.tensor(workers == [1 + get_worker_info().id])


def test_wait__names_image_being_read(tmp_path):
    for row in range(3):
        save_gray(tmp_path / f"{row}.png")
    source = open_source(tmp_path)
    with watching(), source.waiting():
        wait = current().waits.innermost()
        before = wait.progress()
        with loader.reading(Watches(source), 1, source.waiting) as batches:
            assert torch.cat(list(batches)).all()
        after = wait.progress()
        assert after != before  # also between two reads
        assert wait.activity() == ""
        with source.reading(2):
            assert wait.activity() == f"reading {tmp_path}/2.png"
        assert wait.progress() != after
