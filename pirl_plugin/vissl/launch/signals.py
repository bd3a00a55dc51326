"""Stop signals sent to the launcher reach its ranks, which save before they stop."""

from __future__ import annotations

import multiprocessing
import os
import signal
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from pirl_plugin.utils.interrupts import STOPPING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType


@contextmanager
def forward_signals() -> Iterator[None]:
    """Pass SIGTERM and SIGUSR2 on to the ranks that this process started, and live on.

    Where there are none, as in a run of one process, the signals do what they did before.
    """
    before: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}

    def forward(number: int, frame: FrameType | None) -> None:
        # Readers of images are daemons, and ranks are not.
        ranks = [child for child in multiprocessing.active_children() if not child.daemon]
        for rank in ranks:
            with suppress(OSError, TypeError):
                os.kill(rank.pid or 0, number)
        if not ranks:
            signal.signal(number, before[number])
            os.kill(os.getpid(), number)

    with suppress(ValueError):  # only the main thread may
        before.update({number: signal.signal(number, forward) for number in STOPPING})
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def end_stopped(error: BaseException) -> None:
    """End a run whose ranks stopped for a signal with the status that says so, in one sentence.

    Whoever handles the signal in this process is given it first: submitit requeues its job.

    Raises:
        SystemExit: 128 and the signal's number.
    """
    status = error.code if isinstance(error, SystemExit) else getattr(error, "exit_code", None)
    for number in STOPPING:
        if status in (128 + number, -number):  # they saved and stopped, or had not begun
            handler = signal.getsignal(number)
            if callable(handler):
                handler(number, None)
            raise SystemExit(128 + number) from None
