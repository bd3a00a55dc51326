import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import asdict

import pytest

from pirl_plugin.utils import run_lock
from pirl_plugin.utils.run_lock import LOCK_NAME, STALE_S, FolderInUseError, RunLock

QUICK = {"beat_s": 0.1, "stale_s": 1.0}
AHEAD = time.time() + 1e6  # of the file system's clock: no time has passed since, however slow


class Clock:
    """That of the lock, which passes while it sleeps and not otherwise.

    Attributes:
        now: seconds.
        at: what happens elsewhere at some second.
    """

    def __init__(self):
        self.now, self.at = 0.0, {}

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds
        for second in [second for second in self.at if second <= self.now]:
            self.at.pop(second)()


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(run_lock, "time", clock)
    return clock


def beat(folder, again=0):
    """A heartbeat elsewhere."""
    os.utime(folder / LOCK_NAME, (AHEAD, AHEAD + again))


def claim(folder, **changes):
    """A lock file as another process would have left it."""
    holder = {**asdict(RunLock(folder).holder), **changes}
    (folder / LOCK_NAME).write_text(json.dumps(holder))
    return holder


def test_lock__refuses_a_second_holder_and_names_the_first(tmp_path):
    with RunLock(tmp_path), pytest.raises(FolderInUseError) as refused, RunLock(tmp_path):
        pass
    assert f"host {socket.gethostname()}, process {os.getpid()}, started 20" in str(refused.value)
    assert list(tmp_path.iterdir()) == []  # nothing is left behind


def test_lock__of_a_process_that_has_ended_is_stale(tmp_path, clock):
    code = (
        "import os, sys; from pathlib import Path; from pirl_plugin.utils.run_lock import RunLock;"
        f"RunLock(Path({str(tmp_path)!r})).__enter__(); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert (tmp_path / LOCK_NAME).exists()
    with RunLock(tmp_path) as lock:
        assert json.loads((tmp_path / LOCK_NAME).read_text()) == asdict(lock.holder)
    assert clock.now == 0  # it did not wait for a heartbeat


def test_lock__of_a_process_number_that_was_given_again_is_stale(tmp_path):
    claim(tmp_path, birth="0", token="another")
    with RunLock(tmp_path):
        pass


@pytest.mark.parametrize("written", [b"", b"{", b'{"host": 1}', b"\xff\xfe\x80"])
def test_lock__that_cannot_be_read_is_stale_once_its_heartbeat_stops(written, tmp_path, clock):
    (tmp_path / LOCK_NAME).write_bytes(written)
    beat(tmp_path)
    with RunLock(tmp_path):
        assert clock.now == pytest.approx(STALE_S)


def test_lock__elsewhere_is_stale_once_its_heartbeat_stops(tmp_path, clock):
    claim(tmp_path, machine="elsewhere", host="other", token="another")
    beat(tmp_path)
    with RunLock(tmp_path) as lock:
        assert clock.now == pytest.approx(STALE_S)
        assert json.loads((tmp_path / LOCK_NAME).read_text()) == asdict(lock.holder)


def test_lock__elsewhere_is_alive_while_its_heart_beats(tmp_path, clock):
    holder = claim(tmp_path, machine="elsewhere", host="other", token="another")
    beat(tmp_path)
    clock.at[STALE_S - 5] = lambda: beat(tmp_path, again=1)
    with pytest.raises(FolderInUseError), RunLock(tmp_path):
        pass
    assert clock.now == pytest.approx(STALE_S - 5)
    assert json.loads((tmp_path / LOCK_NAME).read_text()) == holder


def test_lock__is_joined_by_other_nodes_of_the_run_alone(tmp_path):
    with RunLock(tmp_path, run="rendezvous a:1"):
        with RunLock(tmp_path, run="rendezvous a:1", node=1):
            pass
        with pytest.raises(FolderInUseError), RunLock(tmp_path, run="rendezvous b:1", node=1):
            pass
        with pytest.raises(FolderInUseError), RunLock(tmp_path, run="rendezvous a:1", node=0):
            pass
        assert (tmp_path / LOCK_NAME).exists()
    with RunLock(tmp_path, run="rendezvous a:1", node=1):  # node 0 may come later
        assert not (tmp_path / LOCK_NAME).exists()


def test_lock__is_taken_over_by_the_requeued_job(tmp_path, clock):
    claim(tmp_path, run="SLURM job 7", machine="elsewhere", token="another")
    with RunLock(tmp_path, run="SLURM job 7", attempt=1):
        assert clock.now == 0  # it did not wait for a heartbeat


def test_lock__says_that_it_was_lost(tmp_path):
    lost = []
    with RunLock(tmp_path, on_lost=lambda: lost.append(True), **QUICK):
        taken = claim(tmp_path, token="another")
        wait_until(lambda: lost)
    assert json.loads((tmp_path / LOCK_NAME).read_text()) == taken  # not removed on leaving


def test_lock__is_held_by_one_of_many_at_once(tmp_path):
    folder, signs = tmp_path / "run", tmp_path / "signs"
    folder.mkdir()
    signs.mkdir()
    code = (
        "import sys, time; from pathlib import Path\n"
        "from pirl_plugin.utils.run_lock import FolderInUseError, RunLock\n"
        "folder, signs = Path(sys.argv[1]), Path(sys.argv[2])\n"
        "(signs / sys.argv[3]).touch()\n"
        "while not (signs / 'go').exists(): pass\n"
        "try:\n"
        "    with RunLock(folder):\n"
        "        while not (signs / 'stop').exists(): time.sleep(0.01)\n"
        "except FolderInUseError:\n"
        "    sys.exit(3)\n"
    )
    claim(folder, pid=2**22 + 1, token="stale")
    command = [sys.executable, "-c", code, str(folder), str(signs)]
    runs = [subprocess.Popen([*command, str(i)]) for i in range(4)]
    try:
        wait_until(lambda: len(list(signs.iterdir())) == 4)
        (signs / "go").touch()
        wait_until(lambda: sum(run.poll() is not None for run in runs) >= 3)
    finally:
        (signs / "stop").touch()
    assert sorted(run.wait() for run in runs) == [0, 3, 3, 3]


def wait_until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_lock__does_without_hard_links(tmp_path, monkeypatch):
    def link(*_):
        raise PermissionError("not on this file system")

    monkeypatch.setattr(os, "link", link)
    with RunLock(tmp_path), pytest.raises(FolderInUseError), RunLock(tmp_path):
        pass


def test_lock__whose_link_is_asked_for_twice_is_its_own(tmp_path, monkeypatch):
    """A network file system sends a request twice; the second finds the file there."""
    link = os.link

    def twice(source, target):
        link(source, target)
        raise FileExistsError(target)

    monkeypatch.setattr(os, "link", twice)
    with RunLock(tmp_path) as lock:
        assert json.loads((tmp_path / LOCK_NAME).read_text()) == asdict(lock.holder)
