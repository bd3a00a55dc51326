"""The worker processes of a loader of images: how they start."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from pirl_plugin.system.watcher import STOPPING

NICE = 10  # of a loader worker. Not SCHED_IDLE: other programs would take all processor time


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
