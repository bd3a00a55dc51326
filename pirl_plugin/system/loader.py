"""Start and end the worker processes of image loaders."""

from __future__ import annotations

import multiprocessing.queues
import multiprocessing.util
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from pirl_plugin.system.failures import FailedProcess
from pirl_plugin.system.processes import kill_workers, killed_worker, loader_workers
from pirl_plugin.system.waits import Wait
from pirl_plugin.system.watcher import STOPPING, current, waiting

if TYPE_CHECKING:
    from torch.utils.data import DataLoader

Batch = TypeVar("Batch", covariant=True)

NICE = 10  # for loader workers. With SCHED_IDLE, other programs would take all CPU time


def start_training_worker(then: Callable[[int], None], on_cpu: bool, worker: int) -> None:
    """Set up a loader worker for a run.

    If the model runs on a CPU, the worker lowers its priority. Otherwise it could delay one of the
    model's threads, and all other threads would wait for that one.

    Args:
        then: VISSL's function, which takes the worker's number; called at the end.
        on_cpu: whether the model runs on a CPU.
        worker: the worker's number.
    """
    start_worker(worker)
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)
    if on_cpu:
        os.nice(NICE)
    then(worker)


def start_worker(worker: int) -> None:
    """Leave signals and errors to a loader worker's parent, and end the worker with the parent.

    In a process that is not watched, the worker still handles SIGTERM, which torch sends to end it.

    Args:
        worker: the worker's number.
    """
    from torch.multiprocessing import _prctl_pr_set_pdeathsig  # type: ignore[attr-defined]

    is_watched = current() is not None  # a forked worker inherits the handler
    signal.set_wakeup_fd(-1)  # and the pipe
    for number in STOPPING if is_watched else [signal.SIGINT]:
        signal.signal(number, signal.SIG_IGN)
    _prctl_pr_set_pdeathsig(signal.SIGKILL)  # even within a read
    queue = multiprocessing.queues.Queue
    queue._on_queue_feeder_error = _send_error  # type: ignore[attr-defined]


def _send_error(queue: Any, error: Exception, item: tuple[int, object]) -> None:
    """Send an error instead of a batch that cannot be sent.

    By default, the worker only logs the error, and its parent waits forever.

    Args:
        queue: the queue between the worker and its parent.
        error: why the batch cannot be sent.
        item: the batch's number and the batch.
    """
    from torch._utils import ExceptionWrapper

    cause = FailedProcess(
        f"A loader process cannot send images: {error}. Check the length of the temporary folder's "
        f"path ({tempfile.gettempdir()}), and the free space in /dev/shm."
    )
    number, _ = item
    queue.put((number, ExceptionWrapper((FailedProcess, cause, error.__traceback__))))


@contextmanager
def reading(loader: DataLoader[Batch], wait: Wait) -> Iterator[Iterator[Batch]]:
    """Read a loader in a block, with a limit on how long to wait for an image.

    If the block fails in a watched process, the workers end before anything else happens. In a
    library user's process, torch ends them.

    Args:
        loader: the loader, whose workers are started.
        wait: the images, and the maximum time without a new one.

    Yields:
        The batches.

    Raises:
        FailedProcess: a worker was killed.
    """
    # Create the folder for the workers' sockets here; otherwise each worker creates its own.
    multiprocessing.util.get_temp_dir()
    batches = iter(loader)
    workers = loader_workers()
    try:
        with waiting(wait):
            yield batches
    except BaseException as error:
        may_be_killed = isinstance(error, (EOFError, OSError, RuntimeError))
        cause = killed_worker(workers) if may_be_killed else ""
        if current() is not None:
            kill_workers()
        if cause:
            raise FailedProcess(cause) from error
        raise
