"""Signals that end a run, as one exception that no handler of ordinary errors catches."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType


STOPPING = (signal.SIGTERM, signal.SIGUSR2)
"""What SLURM and people send before a kill: a run saves and ends. submitit requeues on SIGUSR2."""


class Interrupted(BaseException):
    """A signal asked this process to end; ``signum`` is its number."""

    def __init__(self, signum: int) -> None:
        super().__init__(signal.Signals(signum).name)
        self.signum = signum

    @property
    def exit_status(self) -> int:
        """What a shell reports for a process ended by the signal: 130 for SIGINT."""
        return 128 + self.signum


class Received:
    """The signal that a ``with raised(…)`` block was ended by; ``signum`` is None before."""

    signum: int | None = None


@contextlib.contextmanager
def raised(*signals: signal.Signals) -> Iterator[Received]:
    """Raise :class:`Interrupted` where one of the signals arrives, in the main thread.

    A second one, while the first is dealt with, is ignored. What is yielded tells afterwards too:
    code in between, such as a C++ library that calls back, may turn the exception into another. In
    other threads than the main one this does nothing: Python takes handlers from that one alone.
    """
    received = Received()
    if threading.current_thread() is not threading.main_thread():
        yield received
        return

    def raise_once(signum: int, frame: FrameType | None) -> None:
        for other in signals:
            signal.signal(other, signal.SIG_IGN)
        received.signum = signum
        raise Interrupted(signum)

    before = {number: signal.signal(number, raise_once) for number in signals}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def outlive_terminal() -> None:
    """Go on where the terminal is closed, or the connection to it lost, as with ``nohup``.

    That is SIGHUP; processes started from now on ignore it too. A handler that is set stays.
    """
    in_main = threading.current_thread() is threading.main_thread()
    if in_main and signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)


@contextlib.contextmanager
def ignored(*signals: signal.Signals) -> Iterator[None]:
    """Ignore the signals meanwhile; processes started here ignore them for good."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
