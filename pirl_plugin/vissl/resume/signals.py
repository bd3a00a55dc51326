"""What stops a run: signals. Training saves and ends after its next step; SIGHUP is ignored."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.util import Finalize
from types import FrameType

from pirl_plugin.system.failures import PREFIX

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that users, SLURM and other clusters send before a kill. submitit requeues on SIGUSR2."""
GRACE_S = 5.0
"""Time for the other ranks to end by themselves, seconds."""
# Second signals that end a process. SLURM's SIGUSR1 only asks again.
_ENDING = (signal.SIGINT, signal.SIGTERM)
# One Ctrl-C reaches the launcher and its ranks, and the launcher sends it to its ranks again.
_SAME_SIGNAL_S = 2.0
NICE = 10  # of a loader worker. Not SCHED_IDLE: other programs would take all processor time


class Interrupted(SystemExit):
    """A signal ended this process outside training; the exit status is 128 plus its number."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.code: int = 128 + number


class StopSignals:
    """The handler of this process's stopping signals.

    Attributes:
        requested: number of the signal that asked this process to end; 0 for none.
        polled: whether training reads ``requested`` after each step. Then no signal stops it.
    """

    def __init__(self) -> None:
        self.requested = 0
        self.polled = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal: forward it to ranks, and end this process unless training will.

        Raises:
            Interrupted: no step and no rank will end this process.
        """
        self.requested = number
        # Loader workers are daemons; ranks are not.
        ranks = [process for process in multiprocessing.active_children() if not process.daemon]
        for rank in ranks:
            with suppress(OSError):
                os.kill(rank.pid or 0, number)
        if not ranks and not self.polled:
            raise Interrupted(number)


def current() -> StopSignals | None:
    """Return the handler that :func:`listening` has installed in this process; None without one."""
    handler = signal.getsignal(signal.SIGTERM)
    return handler if isinstance(handler, StopSignals) else None


def requested() -> int:
    """Return the number of the signal that asked this process to end; 0 for none."""
    handler = current()
    return handler.requested if handler is not None else 0


@contextmanager
def listening() -> Iterator[None]:
    """Handle the signals of :data:`STOPPING`, in the main thread only: others receive no signals.

    After the first signal, a run saves and ends. A second SIGINT or SIGTERM ends the process at
    once. At the end of the block, call the previous handler, such as submitit's, with the received
    signal.

    Raises:
        Interrupted: a signal arrived outside training, and no rank process was running.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    handler = StopSignals()
    previous = {number: signal.signal(number, handler) for number in STOPPING}
    # A main thread that waits in torch's C++ code runs no handler. But Python's own C code writes
    # the number of each signal to this pipe, and another thread reads it.
    reader, writer = os.pipe()
    os.set_blocking(writer, False)  # as set_wakeup_fd demands it
    earlier = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=_await_second_signal, args=[reader], daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(earlier)
        os.close(writer)  # ends the thread
        for number, previous_handler in previous.items():
            signal.signal(number, previous_handler)
        received = handler.requested
        # Python's own handler of SIGINT would raise KeyboardInterrupt in place of the exception
        # that ends the run, which has the sentence and the exit status.
        if received and received != signal.SIGINT:
            previous_handler = previous[signal.Signals(received)]
            if callable(previous_handler):
                previous_handler(received, None)


def _await_second_signal(reader: int) -> None:
    """Read the numbers of signals from a pipe, until it is closed, and end the process."""
    first_at: float | None = None
    while byte := os.read(reader, 1):
        number = byte[0]
        now = time.monotonic()
        if number not in STOPPING:  # such as SIGCHLD, for which torch's loaders have a handler
            continue
        if first_at is None:
            first_at = now
        elif number in _ENDING and now - first_at >= _SAME_SIGNAL_S:
            _end_on_second_signal(number)
    os.close(reader)


def _end_on_second_signal(number: int) -> None:
    if any(not child.daemon for child in multiprocessing.active_children()):
        time.sleep(GRACE_S)  # the launcher: its ranks got the signal too
    name = signal.Signals(number).name
    end_process(
        f"{PREFIX}{name} again: the run has ended without saving; the same command resumes from "
        f"the last checkpoint",
        128 + number,
    )


def end_process(text: str, status: int) -> None:
    """End this process and its children at once, from any thread.

    Args:
        text: the sentence for the console. A spawned rank does not print it, its launcher does.
        status: the exit status.
    """
    if multiprocessing.parent_process() is None:
        # The main thread may hold the lock of sys.stderr.
        os.write(2, f"{text}\n".encode(sys.stderr.encoding or "utf-8", "backslashreplace"))
    for child in multiprocessing.active_children():
        child.kill()
    os._exit(status)


def start_worker(then: Callable[[int], None], on_cpu: bool, worker: int) -> None:
    """Set up the process of a loader worker: ignore signals, because the rank saves on them.

    If the model runs on a CPU, the worker lowers its priority. Otherwise it could delay a thread of
    the model, and all other threads would wait for this thread.

    Args:
        then: the host's function, which takes the worker's number; called at the end.
        on_cpu: whether the model runs on a CPU.
        worker: the worker's number.
    """
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)
    if on_cpu:
        os.nice(NICE)
    then(worker)


def kill_workers_at_exit() -> None:
    """Make this process kill its loader workers when it ends, before it waits for them.

    Otherwise Python sends SIGTERM, which the workers ignore, and waits forever.
    """
    Finalize(None, _kill_workers, exitpriority=100)  # repeated calls do no harm


def _kill_workers() -> None:
    for child in multiprocessing.active_children():
        if child.daemon:
            child.kill()
