"""Ending a process: by signals, or after a wait without progress."""

import os
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from pirl_plugin.system import loader, watcher
from tests.helpers.programs import run_python

# A main thread that ignores signals, as if it waited in a read or a collective. Like a
# rank with loader workers, it has a SIGCHLD handler.
DEAF = """
import signal, time
from pirl_plugin.system import watcher
signal.signal(signal.SIGCHLD, lambda number, frame: None)
watcher._SAME_SIGNAL_S = 1
with watcher.watching():
    watcher.current().polled = True
    print("ready", flush=True)
    while True:
        time.sleep(60)
"""


def test_second_signal__ends_unresponsive_process():
    with subprocess.Popen(
        [sys.executable, "-c", DEAF], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGHUP)  # the terminal was closed
        process.send_signal(signal.SIGCHLD)  # a worker has ended: not a request to stop
        time.sleep(2)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)  # one Ctrl-C may reach a process more than once
        time.sleep(2)
        process.send_signal(signal.SIGUSR1)  # SLURM asks again: no reason to lose the step
        time.sleep(0.2)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 128 + signal.SIGTERM
        assert process.stderr.read().startswith("pirl_plugin: ended at once by a second SIGTERM")


def test_deferring__delays_signal_until_after_the_block():
    """Otherwise, processes still being started would not be known yet."""
    reached = []

    def start():
        with watcher.watching(), watcher.deferring():
            signal.raise_signal(signal.SIGTERM)
            reached.append("the end of the block")

    with pytest.raises(watcher.Interrupted):
        start()
    assert reached


def test_signals__interrupt_at_once_unless_polled():
    with pytest.raises(watcher.Interrupted) as ended, watcher.watching():
        signal.raise_signal(signal.SIGTERM)
    assert ended.value.code == 143
    with watcher.watching():
        watcher.current().polled = True  # as in training
        signal.raise_signal(signal.SIGINT)
        assert watcher.current().requested == signal.SIGINT
    assert watcher.current().requested == 0  # nothing is being watched anymore
    # A thread freeing the run's tensors during interpreter shutdown would abort the process.
    assert watcher.THREAD not in {thread.name for thread in threading.enumerate()}


def test_signals__are_sent_to_ranks_but_not_loader_workers(monkeypatch):
    processes = [SimpleNamespace(pid=7, daemon=False), SimpleNamespace(pid=8, daemon=True)]
    monkeypatch.setattr(watcher.multiprocessing, "active_children", lambda: processes)
    killed, sent = [], []
    monkeypatch.setattr(watcher, "kill_workers", lambda: killed.append(8))
    with watcher.watching():  # the launcher continues until its ranks end
        monkeypatch.setattr(os, "kill", lambda *arguments: sent.append(arguments))
        signal.raise_signal(signal.SIGUSR1)
    assert sent == [(7, signal.SIGUSR1)]
    assert killed == [8]  # killed at the end, because Python would wait for it


def test_signals__reach_earlier_handler_at_the_end():
    received = []
    before = signal.signal(signal.SIGUSR2, lambda number, frame: received.append(number))
    try:
        with watcher.watching():
            watcher.current().polled = True
            signal.raise_signal(signal.SIGUSR2)
            assert received == []
        assert received == [signal.SIGUSR2]  # submitit requeues the job
    finally:
        signal.signal(signal.SIGUSR2, before)


def test_worker__ignores_signals_and_yields_cpu_to_the_model(monkeypatch):
    handlers, blocked, niceness, seeded = {}, {}, [], []
    monkeypatch.setattr(signal, "signal", handlers.__setitem__)
    monkeypatch.setattr(signal, "pthread_sigmask", blocked.__setitem__)
    monkeypatch.setattr(loader.threading, "Thread", lambda **options: SimpleNamespace(start=list))
    monkeypatch.setattr(os, "nice", niceness.append)
    for on_cpu in (False, True):
        loader.start_training_worker(seeded.append, on_cpu, 3)
    assert handlers == {signal.SIGINT: signal.SIG_IGN}
    assert blocked == {signal.SIG_BLOCK: watcher.STOPPING}
    assert niceness == [loader.NICE]
    assert seeded == [3, 3]


# Waits with progress, computing and short waits; then one without progress: a read, or a loader
# worker that is stopped between two reads.
HANGS = """
import os, pathlib, signal, sys, time
from pirl_plugin.system import watcher
from pirl_plugin.system.waits import Waits
folder = pathlib.Path(sys.argv[1])
def waiting(name, progress=lambda: 0):
    return watcher.waiting(lambda: name, progress)
with watcher.watching():
    watcher.current().waits = Waits(0.02, "KEY")
    watcher.current().folder = folder
    with waiting("moving", lambda: time.monotonic() // 0.6):
        time.sleep(2.5)
    for _ in range(3):
        with waiting("short"):
            time.sleep(0.9)
    time.sleep(2.5)  # the main thread computes
    if sys.argv[2] == "read":
        os.mkfifo(folder / "fifo")
        with waiting("a batch"), waiting("reading hangs.jpg"):
            open(folder / "fifo")
    from tests.system.test_loader import reading, stop_itself
    with reading(stop_itself) as batches:
        list(batches)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "cause"),
    [("read", "reading hangs.jpg does not return"), ("worker", "the loader processes do not resp")],
)
def test_wait__ends_process_without_progress_and_saves_stack(kind, cause, tmp_path):
    done = run_python("-c", HANGS, tmp_path, kind, check=False)
    assert done.returncode == 1, done.stderr
    file = tmp_path / "failure.txt"
    begin = f"pirl_plugin: no image was read for 0.02 minutes (KEY): {cause}"
    assert done.stderr.startswith(begin)
    assert done.stderr.endswith(f"(traceback in {file})\n")
    assert "in <module>" in file.read_text()


# A read that no signal interrupts: the main thread runs no handler, or its exception is lost.
IGNORES = """
import signal, sys, time
from pirl_plugin.system import watcher
watcher.GRACE_S = 1
with watcher.watching(), watcher.waiting():
    if sys.argv[1] == "blocked":
        signal.pthread_sigmask(signal.SIG_BLOCK, watcher.STOPPING)
    print("ready", flush=True)
    while True:
        try:
            time.sleep(60)
        except BaseException:
            pass
"""


@pytest.mark.parametrize("kind", ["blocked", "lost"])
def test_first_signal__ends_read_that_it_does_not_interrupt(kind):
    with subprocess.Popen(
        [sys.executable, "-c", IGNORES, kind],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 128 + signal.SIGINT
        assert process.stderr.read() == "pirl_plugin: interrupted by SIGINT\n"


IMPORTS = """
import signal, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "numpy.lib":
            signal.raise_signal(signal.SIGTERM)

from pirl_plugin.cli import main
sys.meta_path.insert(0, Finder())
main()
"""


@pytest.mark.slow
def test_signal__is_not_lost_while_torch_imports_numpy():
    words = ["embed", "--checkpoint", "gone.torch", "--data", "gone", "--out", "out.npz"]
    done = run_python("-c", IMPORTS, *words, check=False)
    assert done.stderr == "pirl_plugin: interrupted by SIGTERM\n"
    assert done.returncode == 128 + signal.SIGTERM


def watchers():
    return [thread for thread in threading.enumerate() if thread.name == watcher.THREAD]


def test_watching__uses_one_thread_and_ends_it():
    for thread in watchers():  # from an earlier test
        thread.join(10)
    with watcher.watching(), watcher.watching(), watcher.waiting():
        (thread,) = watchers()
    thread.join(10)
    assert watchers() == []
