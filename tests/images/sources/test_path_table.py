"""Tables of paths: round trips, bounds, and what a worker is sent."""

import multiprocessing
import os
import pickle
from multiprocessing import context, reduction

import pytest

from pirl_plugin.images.sources.path_table import PathTable


def test_path_table__round_trip():
    paths = ["", "a/b.jpg", "ä é/ü.png", os.fsdecode(b"\xff\xfe.jpg")]
    table = pickle.loads(pickle.dumps(PathTable(paths)))
    assert list(table) == paths
    assert table[-1] == paths[-1]
    with pytest.raises(IndexError, match="path 4 of 4"):
        table[4]
    assert list(PathTable([])) == []


def _last(table, queue):
    queue.put((len(table), table[-1]))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_path_table__is_shared_with_workers(method, monkeypatch):
    table = PathTable(f"images/{n:08d}.jpg" for n in range(100_000))
    started = multiprocessing.get_context(method)
    queue = started.SimpleQueue()
    process = started.Process(target=_last, args=(table, queue))
    process.start()
    assert queue.get() == (100_000, "images/00099999.jpg")
    process.join()
    assert process.exitcode == 0


def test_path_table__is_not_sent(monkeypatch):
    """A worker is sent a file descriptor: 2.6 MB of paths are some hundred bytes."""

    class Popen:
        def DupFd(self, descriptor):
            return descriptor

        def duplicate_for_child(self, descriptor):
            return descriptor

    table = PathTable(f"images/{n:08d}.jpg" for n in range(100_000))
    monkeypatch.setattr(context, "get_spawning_popen", Popen)
    assert len(bytes(reduction.ForkingPickler.dumps(table))) < 1000
