"""Signals that end a run: training saves and ends after the next step; SIGHUP is ignored."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that users, SLURM and other clusters send before a kill. submitit requeues on SIGUSR2."""

_state = {"requested": 0, "polled": False}


class Interrupted(SystemExit):
    """A signal ended this process outside training; the exit status is 128 plus its number."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.code: int = 128 + number


def requested() -> int:
    """Return the number of the signal that asked this process to end; 0 for none."""
    return _state["requested"]


def poll(polled: bool = True) -> None:
    """Set whether training reads :func:`requested` after each step, so that no signal stops it."""
    _state["polled"] = polled


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
    _state.update(requested=0, polled=False)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    before = {number: signal.signal(number, _handle) for number in STOPPING}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
        poll(False)
        if (number := _state["requested"]) and number != signal.SIGINT:
            if callable(handler := before[signal.Signals(number)]):
                handler(number, None)


def _handle(number: int, frame: FrameType | None) -> None:
    _state["requested"] = number
    ranks = [process for process in multiprocessing.active_children() if not process.daemon]
    for rank in ranks:  # loader workers are daemons
        with suppress(OSError):
            os.kill(rank.pid or 0, number)
    if not ranks and not _state["polled"]:
        raise Interrupted(number)
