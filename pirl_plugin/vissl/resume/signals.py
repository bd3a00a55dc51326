"""What stops a run: signals. Training saves and ends after its next step; SIGHUP is ignored."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.util import Finalize
from types import FrameType

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that users, SLURM and other clusters send before a kill. submitit requeues on SIGUSR2."""
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

    At its end, call the previous handler, such as submitit's, with the received signal.

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
    try:
        yield
    finally:
        for number, previous_handler in previous.items():
            signal.signal(number, previous_handler)
        received = handler.requested
        if received and received != signal.SIGINT:
            previous_handler = previous[signal.Signals(received)]
            if callable(previous_handler):
                previous_handler(received, None)


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
