"""A loader of images: its worker processes, and a limit for each read."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import connection, process
from typing import Any

from pirl_plugin.system.processes import how_it_ended
from pirl_plugin.system.watcher import STOPPING, Reader, Wait, waiting

TIMEOUT_MINUTES = 10.0
"""The longest time in which a command reads no other image."""
NICE = 10  # of a loader worker. Not SCHED_IDLE: other programs would take all processor time


class KilledWorkerError(RuntimeError):
    """A loader's worker was killed, so that its batches are lost."""


@contextmanager
def limited_reads(sources: Sequence[Reader]) -> Iterator[None]:
    """Limit the time of a read in a loop over a loader, and name a worker that was killed.

    Args:
        sources: where the loader's images come from.

    Raises:
        KilledWorkerError: a worker was killed.
    """
    try:
        with waiting(Wait(sources, TIMEOUT_MINUTES)):
            yield
    except (EOFError, OSError) as error:
        cause = killed_worker()
        if cause:
            raise KilledWorkerError(cause) from error
        raise


def killed_worker() -> str:
    """Return the sentence about a loader worker of this process that was killed; empty if none was.

    A batch stays in the memory of its worker until this process asks the worker for it. If the
    worker has ended, the error is that a connection is refused or closed. Otherwise torch notices
    the end, and names it.
    """
    workers: list[Any] = [child for child in process._children if child.daemon]  # type: ignore[attr-defined]
    # A worker's connection closes shortly before its end.
    ended = connection.wait([worker.sentinel for worker in workers], timeout=1)
    for worker in workers:
        if worker.sentinel in ended:
            worker.join()
            if worker.exitcode:
                return f"a loader process {how_it_ended(worker.exitcode)}"
    return ""


def start_training_worker(then: Callable[[int], None], on_cpu: bool, worker: int) -> None:
    """Set up a loader worker of a run.

    If the model runs on a CPU, the worker lowers its priority. Otherwise it could delay a thread of
    the model, and all other threads would wait for this thread.

    Args:
        then: the host's function, which takes the worker's number; called at the end.
        on_cpu: whether the model runs on a CPU.
        worker: the worker's number.
    """
    start_worker(worker)
    if on_cpu:
        os.nice(NICE)
    then(worker)


def start_worker(worker: int) -> None:
    """Ignore signals, which this worker's parent handles, and end with the parent.

    Args:
        worker: the worker's number.
    """
    from torch.multiprocessing import _prctl_pr_set_pdeathsig  # type: ignore[attr-defined]

    signal.set_wakeup_fd(-1)  # a forked worker has its parent's
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)
    _prctl_pr_set_pdeathsig(signal.SIGKILL)  # also within a read
