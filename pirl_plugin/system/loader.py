"""Start and end the worker processes of image loaders.

A fork server starts them. A fork of this process would share its files and HDF5 handles, and could
deadlock on a lock that one of its threads holds.

Rows *killed worker* and *killed parent* of "How a command ends" (docs/architecture.md).
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.queues
import multiprocessing.util
import os
import pickle
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from multiprocessing import connection, forkserver
from types import ModuleType
from typing import Any

from pirl_plugin.system import processes
from pirl_plugin.system.console import warn_once
from pirl_plugin.system.cores import usable_cores
from pirl_plugin.system.failures import ENOUGH_SHARED_MEMORY, FailedProcess, sentence
from pirl_plugin.system.watcher import STOPPING, current, deferring

NICE = 10  # for loader workers. With SCHED_IDLE, other programs would take all CPU time
_LARGEST_COPY = 2**28  # bytes of a data set, which each worker copies
_MOST_TENSORS = 200  # in a data set, as sharing each takes a file descriptor


def prepare_workers(module: str, workers: int | None = None) -> None:
    """Start the server that forks loader workers, unless it is running or none is needed.

    Args:
        module: the module that defines the data set, which the server imports.
        workers: number of workers that the user asked for; None: based on the number of cores.
    """
    if workers == 0 or (workers is None and usable_cores() == 1):
        return
    multiprocessing.set_forkserver_preload([module])
    with processes.sharing_import_path(), deferring():
        forkserver.ensure_running()


def start_training_worker(then: Callable[[int], None], on_cpu: bool, worker: int) -> None:
    """Set up a loader worker for a run, which needs it to finish its step after a signal.

    If the model is on the CPU too, a worker of the same priority could delay one of its threads,
    for which all others would wait. At the end, VISSL's function ``then`` is called.
    """
    start_worker(worker)
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    if on_cpu:
        os.nice(NICE)
    then(worker)


def start_worker(worker: int) -> None:
    """Leave Ctrl-C and errors to a loader worker's parent, and end the worker with the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    queue = multiprocessing.queues.Queue
    queue._on_queue_feeder_error = _send_error  # type: ignore[attr-defined]


def _end_with_parent() -> None:
    """Wait for the parent to end; then end this process, even within a read."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _send_error(queue: Any, error: Exception, item: tuple[int, object]) -> None:
    """Send an error, with the batch's number, for a batch that a worker cannot send.

    By default, the worker only logs the error, and its parent waits forever.
    """
    from torch._utils import ExceptionWrapper

    cause = FailedProcess(
        f"A loader process cannot send images: {error}. Check the length of the temporary folder's "
        f"path ({tempfile.gettempdir()}). {ENOUGH_SHARED_MEMORY}."
    )
    number, _ = item
    queue.put((number, ExceptionWrapper((FailedProcess, cause, error.__traceback__))))


@contextmanager
def reading(
    data: Any, workers: int, waiting: Callable[[], AbstractContextManager[None]], **options: Any
) -> Iterator[Batches]:
    """Yield a data set's batches in a block.

    Args:
        data: a map-style data set. If workers cannot receive it, this process reads it.
        workers: number of worker processes; 0: this process.
        waiting: see :class:`Batches`.
        **options: options for ``torch.utils.data.DataLoader``.
    """
    from torch.utils.data import DataLoader

    script = sys.modules["__main__"]
    # Workers would import the user's script, and run all of it again unless it is protected by
    # ``if __name__ == "__main__":``. So the script is hidden, and nothing that it, or a notebook,
    # defines can be pickled.
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        if workers > 0 and _can_send(data):
            prepare_workers(type(data).__module__, workers)
            # Create the folder for the workers' sockets here; otherwise each creates its own.
            multiprocessing.util.get_temp_dir()
            options.update(
                num_workers=workers,
                worker_init_fn=start_worker,
                multiprocessing_context="forkserver",
            )
        batches = Batches(DataLoader(data, **options), waiting)
    finally:
        sys.modules["__main__"] = script
    try:
        yield batches
    except BaseException:
        if current().is_active:  # in a library user's process, torch ends the workers
            processes.kill_workers()
        raise


class Batches:
    """A loader's batches, with a limit on how long to wait for an image.

    Args:
        loader: the loader, whose workers are started.
        waiting: returns a block that waits for the images that the workers read.
    """

    def __init__(self, loader: Any, waiting: Callable[[], AbstractContextManager[None]]) -> None:
        self._waiting = waiting
        with waiting():  # for a GPU, VISSL reads the first batch here
            self._batches = iter(loader)
        self._workers = processes.loader_workers()

    def __len__(self) -> int:  # for a hook of Classy Vision
        return len(self._batches)

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> Any:
        """Return the next batch; raise ``FailedProcess`` if a worker was killed."""
        try:
            with self._waiting():
                return next(self._batches)
        except (EOFError, OSError, RuntimeError) as error:  # a worker's connection, or torch
            # A worker's connection closes shortly before it ends.
            connection.wait([worker.sentinel for worker in self._workers], timeout=1)
            for worker in self._workers:
                if worker.exitcode:
                    ended = processes.describe_exit(worker.exitcode)
                    raise FailedProcess(f"a loader process {ended}") from error
            raise


def _can_send(data: Any) -> bool:
    """Return whether workers can receive a data set; if not, warn why."""
    probe = _Probe()
    obstacle = ""
    try:
        probe.dump(data)
    except Exception as error:  # classes may define how they are pickled
        obstacle = (
            f"cannot be pickled ({sentence(error)}). To use workers, define it in a module, not in "
            f"the script or notebook itself, with values that pickle supports"
        )
    if probe.size > _LARGEST_COPY:
        obstacle = f"takes {probe.size / 1e9:.1f} GB of memory, which each would copy"
    if probe.num_tensors > _MOST_TENSORS:
        obstacle = f"contains {probe.num_tensors:,} tensors, too many to share"
    if obstacle:
        warn_once(f"Images are read without worker processes: the data set {obstacle}.")
    return not obstacle


class _Probe(pickle.Pickler):
    """Pickles an object without keeping the result; tensors are shared, so they do not count."""

    def __init__(self) -> None:
        super().__init__(self, pickle.HIGHEST_PROTOCOL)
        self.size = 0
        self.num_tensors = 0

    def write(self, data: bytes | memoryview) -> None:
        self.size += memoryview(data).nbytes

    def reducer_override(self, value: Any) -> Any:
        from torch import Tensor

        if not isinstance(value, Tensor):
            return NotImplemented
        self.num_tensors += 1
        return int, ()
