"""What signals do: the first makes a run end, and the second ends it at once."""

import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from pirl_plugin.vissl.resume import signals

# A main thread that does nothing on signals, like one that waits in a read or a collective. Like a
# rank with loader workers, it has a handler of SIGCHLD.
DEAF = """
import signal, time
from pirl_plugin.vissl.resume import signals
signal.signal(signal.SIGCHLD, lambda number, frame: None)
with signals.listening():
    signals.current().polled = True
    print("ready", flush=True)
    while True:
        time.sleep(60)
"""


def test_second_signal__ends_a_process_that_does_not_react():
    with subprocess.Popen(
        [sys.executable, "-c", DEAF], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGCHLD)  # a worker has ended: nobody asked the run to end
        time.sleep(2.2)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)  # one Ctrl-C may reach a process more than once
        time.sleep(2.2)
        process.send_signal(signal.SIGUSR1)  # SLURM asks again: no reason to lose the step
        time.sleep(0.2)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 128 + signal.SIGTERM
        assert process.stderr.read().startswith("pirl_plugin: SIGTERM again: ")


def test_signals__outside_training_end_at_once_and_inside_set_the_request():
    with pytest.raises(signals.Interrupted) as ended, signals.listening():
        signal.raise_signal(signal.SIGTERM)
    assert ended.value.code == 143
    with signals.listening():
        signals.current().polled = True  # as training does
        signal.raise_signal(signal.SIGINT)
        assert signals.requested() == signal.SIGINT


def test_signals__go_to_the_ranks_and_not_to_loader_workers(monkeypatch):
    processes = [SimpleNamespace(pid=7, daemon=False), SimpleNamespace(pid=8, daemon=True)]
    monkeypatch.setattr(signals.multiprocessing, "active_children", lambda: processes)
    sent = []
    with signals.listening():  # the launcher goes on, until its ranks end
        monkeypatch.setattr(os, "kill", lambda *arguments: sent.append(arguments))
        signal.raise_signal(signal.SIGUSR1)
    assert sent == [(7, signal.SIGUSR1)]


def test_signals__reach_the_earlier_handler_at_the_end():
    received = []
    before = signal.signal(signal.SIGUSR2, lambda number, frame: received.append(number))
    try:
        with signals.listening():
            signals.current().polled = True
            signal.raise_signal(signal.SIGUSR2)
            assert received == []
        assert received == [signal.SIGUSR2]  # submitit puts the job in the queue again
    finally:
        signal.signal(signal.SIGUSR2, before)


def test_worker__ignores_the_signals_and_leaves_processor_time_to_a_model_on_it(monkeypatch):
    handlers, niceness, seeded = {}, [], []
    monkeypatch.setattr(signal, "signal", handlers.__setitem__)
    monkeypatch.setattr(os, "nice", niceness.append)
    for on_cpu in (False, True):
        signals.start_worker(seeded.append, on_cpu, 3)
    assert handlers == dict.fromkeys(signals.STOPPING, signal.SIG_IGN)
    assert niceness == [signals.NICE]
    assert seeded == [3, 3]
