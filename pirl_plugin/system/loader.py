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
from contextlib import contextmanager
from multiprocessing import forkserver
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pirl_plugin.system.console import warn_once
from pirl_plugin.system.cores import usable_cores
from pirl_plugin.system.failures import ENOUGH_SHARED_MEMORY, FailedProcess, sentence
from pirl_plugin.system.processes import (
    kill_workers,
    killed_worker,
    loader_workers,
    sharing_import_path,
)
from pirl_plugin.system.waits import Wait
from pirl_plugin.system.watcher import STOPPING, current, deferring, waiting

if TYPE_CHECKING:
    from torch.utils.data import DataLoader

NICE = 10  # for loader workers. With SCHED_IDLE, other programs would take all CPU time
_LARGEST_COPY = 2**28  # bytes of a data set, which each worker copies
_MOST_TENSORS = 200  # in a data set, as sharing each takes a file descriptor


def prepare_workers(module: str, workers: int | None = None) -> None:
    """Start the server that forks loader workers, unless it is running.

    It imports what the workers need while this process does its own imports.

    Args:
        module: the module that defines the data set.
        workers: number of workers that the user asked for; None: based on the number of cores.
    """
    if workers == 0 or (workers is None and usable_cores() == 1):
        return
    multiprocessing.set_forkserver_preload([module])
    with sharing_import_path(), deferring():
        forkserver.ensure_running()


def start_training_worker(then: Callable[[int], None], on_cpu: bool, worker: int) -> None:
    """Set up a loader worker for a run, which needs it to finish its step after a signal.

    If the model runs on a CPU, the worker lowers its priority. Otherwise it could delay one of the
    model's threads, and all other threads would wait for that one.

    Args:
        then: VISSL's function, which takes the worker's number; called at the end.
        on_cpu: whether the model runs on a CPU.
        worker: the worker's number.
    """
    start_worker(worker)
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    if on_cpu:
        os.nice(NICE)
    then(worker)


def start_worker(worker: int) -> None:
    """Leave Ctrl-C and errors to a loader worker's parent, and end the worker with the parent.

    Args:
        worker: the worker's number.
    """
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
        f"path ({tempfile.gettempdir()}). {ENOUGH_SHARED_MEMORY}."
    )
    number, _ = item
    queue.put((number, ExceptionWrapper((FailedProcess, cause, error.__traceback__))))


@contextmanager
def reading(
    data: Any, workers: int, new_wait: Callable[[], Wait], **options: Any
) -> Iterator[Batches]:
    """Read a data set in a block.

    If the block fails in a watched process, the workers end before anything else happens. In a
    library user's process, torch ends them.

    Args:
        data: a map-style data set. If workers cannot receive it, this process reads it, and one
            line says so.
        workers: number of worker processes; 0: this process.
        new_wait: see :class:`Batches`.
        **options: options for ``torch.utils.data.DataLoader``.

    Yields:
        The batches.

    Raises:
        FailedProcess: a worker was killed.
    """
    script = sys.modules["__main__"]
    # Workers would import the user's script, and so run all of it again if it is not protected by
    # ``if __name__ == "__main__":``. What it defines, or a notebook, cannot be pickled without it.
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        batches = Batches(_loader(data, workers, options), new_wait)
    finally:
        sys.modules["__main__"] = script
    try:
        yield batches
    except BaseException:
        if current().is_active:
            kill_workers()
        raise


class Batches:
    """A loader's batches, with a limit on how long to wait for an image.

    Args:
        loader: the loader, whose workers are started.
        new_wait: returns a new wait for the images that the workers read.
    """

    def __init__(self, loader: Any, new_wait: Callable[[], Wait]) -> None:
        self._new_wait = new_wait
        with waiting(new_wait()):  # for a GPU, VISSL reads the first batch here
            self._batches = iter(loader)
        self._workers = loader_workers()

    def __len__(self) -> int:
        """Return the loader's number of batches."""
        return len(self._batches)

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> Any:
        """Return the next batch.

        Raises:
            FailedProcess: a worker was killed.
        """
        try:
            with waiting(self._new_wait()):
                return next(self._batches)
        except (EOFError, OSError, RuntimeError) as error:
            cause = killed_worker(self._workers)
            if cause:
                raise FailedProcess(cause) from error
            raise


def _loader(data: Any, workers: int, options: dict[str, Any]) -> DataLoader[Any]:
    """Return a loader with workers, if these can receive the data set."""
    from torch.utils.data import DataLoader

    if workers > 0:
        prepare_workers(type(data).__module__, workers)
        # Create the folder for the workers' sockets here; otherwise each creates its own.
        multiprocessing.util.get_temp_dir()
        obstacle = _obstacle(data)
        if obstacle:
            warn_once(f"Images are read without worker processes: {obstacle}.")
        else:
            options.update(
                num_workers=workers,
                worker_init_fn=start_worker,
                multiprocessing_context="forkserver",
            )
    return DataLoader(data, **options)


def _obstacle(data: Any) -> str:
    """Return why worker processes cannot receive a data set; empty if they can."""
    probe = _Probe()
    try:
        probe.dump(data)
    except Exception as error:  # classes may define how they are pickled
        return (
            f"the data set cannot be pickled ({sentence(error)}). To use workers, define it in a "
            f"module, not in the script or notebook itself, with values that pickle supports"
        )
    if probe.size > _LARGEST_COPY:
        return f"the data set takes {probe.size / 1e9:.1f} GB of memory, which each would copy"
    if probe.num_tensors > _MOST_TENSORS:
        return f"the data set contains {probe.num_tensors:,} tensors, too many to share"
    return ""


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
