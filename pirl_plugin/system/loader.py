"""A loader of images: its worker processes, and a limit for each wait."""

from __future__ import annotations

import errno
import multiprocessing
import os
import shutil
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from multiprocessing import connection
from pathlib import Path
from typing import Any, Protocol

from pirl_plugin.system.failures import sentence
from pirl_plugin.system.watcher import (
    STOPPING,
    Interrupted,
    Wait,
    current,
    kill_workers,
    waiting,
)

TIMEOUT_MINUTES = 10.0
"""The longest time in which a command reads no image."""
NICE = 10  # of a loader worker. Not SCHED_IDLE: other programs would take all processor time
_SHARED_MEMORY = Path("/dev/shm")
_LITTLE_MEMORY = 64 * 2**20  # bytes, what a container has by default; a batch may need more


class LoaderError(RuntimeError):
    """A loader's processes or their memory fail, not an image."""


class Reader(Protocol):
    """A source of images."""

    def being_read(self) -> list[str]:
        """Return the paths that this process and its loader workers read at this moment."""


class WatchedBatches(Iterator[Any]):
    """The batches of a loader, with a limit for each wait.

    Args:
        loader: the loader.
        wait: what a wait for a batch is, from :func:`wait_for_images`.
    """

    def __init__(self, loader: Iterable[Any], wait: Callable[[], Wait]) -> None:
        self._wait = wait
        self._workers: list[Any] = []
        handler = signal.getsignal(signal.SIGCHLD)
        # The host's asynchronous copy to a GPU reads a batch here.
        self._batches: Any = self._limited(iter, loader)
        self._workers = [child for child in multiprocessing.active_children() if child.daemon]
        if current() is not None:
            # torch's handler would raise the end of a worker anywhere, not in the next wait.
            signal.signal(signal.SIGCHLD, handler)

    def __next__(self) -> Any:
        return self._limited(next, self._batches)

    def __len__(self) -> int:  # the host's number of steps in a phase
        return len(self._batches)

    def _limited(self, function: Callable[[Any], Any], batches: Any) -> Any:
        """Call ``iter`` or ``next`` within the limit."""
        try:
            with waiting(self._wait()):
                return function(batches)
        except Interrupted:
            kill_workers()  # torch would wait five seconds for a worker whose read hangs
            raise
        except (RuntimeError, OSError, EOFError) as error:
            cause = _cause(error, self._workers)
            if not cause:
                raise
            raise LoaderError(cause) from error


def wait_for_images(
    sources: Sequence[Reader],
    minutes: float | None = None,
    key: str = "",
    folder: Path | None = None,
) -> Wait:
    """Return the wait for images, which ends this process if none is read for too long.

    Args:
        sources: where the images come from.
        minutes: the limit; None: ``TIMEOUT_MINUTES``.
        key: of the configuration, if it has the limit.
        folder: folder for ``failure.txt``; None for a temporary folder.
    """
    limit = TIMEOUT_MINUTES if minutes is None else minutes

    def being_read() -> list[str]:
        return [path for source in sources for path in source.being_read()]

    def explain() -> str:
        paths = being_read()
        activity = f"reading {', '.join(paths[:3])}" if paths else "a read"
        return (
            f"no image was read for {limit:g} minutes{f' ({key})' if key else ''}: {activity} does "
            f"not return; check the file and its disk or mount, and start again"
        )

    return Wait(limit, explain, being_read, folder)


def _cause(error: Exception, workers: Sequence[Any]) -> str:
    """Return the sentence of an error that a loader's processes or their memory cause; or ""."""
    # torch's handler of SIGCHLD raises when a worker has ended: then nothing is left to wait for.
    with suppress(RuntimeError):
        _wait_for_end(workers)
    for worker in workers:
        if worker.exitcode:
            return f"a loader process {_how_it_ended(worker.exitcode)}"
    is_full = isinstance(error, OSError) and error.errno == errno.ENOSPC
    if (workers or is_full) and _SHARED_MEMORY.is_dir():
        free = shutil.disk_usage(_SHARED_MEMORY).free
        if free < _LITTLE_MEMORY:
            return (
                f"{sentence(error)}; {_SHARED_MEMORY}, through which loader workers send images, "
                f"has {free / 2**20:.0f} MiB left: give a container more of it, such as docker run "
                f"--shm-size=8g, or take no workers"
            )
    return ""


def _wait_for_end(workers: Sequence[Any]) -> None:
    """Wait for a worker whose connection is closed; it closes shortly before the worker's end."""
    closed = connection.wait([worker.sentinel for worker in workers], timeout=1)
    for worker in workers:
        if worker.sentinel in closed:
            worker.join()


def _how_it_ended(exit_code: int) -> str:
    if exit_code > 0:
        return f"ended with exit status {exit_code}"
    name = signal.Signals(-exit_code).name
    causes = {
        "SIGKILL": ", which the system sends if memory runs out: take fewer workers",
        "SIGBUS": f", which a full {_SHARED_MEMORY} causes: give a container more of it, such as "
        f"docker run --shm-size=8g, or take no workers",
    }
    return f"was ended by {name}{causes.get(name, '')}"


def start_training_worker(then: Callable[[int], None], on_cpu: bool, worker: int) -> None:
    """Set up a loader worker of a run: it ignores signals, because the rank saves on them.

    If the model runs on a CPU, the worker lowers its priority. Otherwise it could delay a thread of
    the model, and all other threads would wait for this thread.

    Args:
        then: the host's function, which takes the worker's number; called at the end.
        on_cpu: whether the model runs on a CPU.
        worker: the worker's number.
    """
    _leave_to_parent(STOPPING)
    if on_cpu:
        os.nice(NICE)
    then(worker)


def start_worker(worker: int) -> None:
    """Set up a loader worker of a command: Ctrl-C ends the command, which ends its workers."""
    _leave_to_parent((signal.SIGINT,))


def _leave_to_parent(numbers: Sequence[signal.Signals]) -> None:
    """Ignore signals, and end with the process that started this one, also within a read."""
    from torch.multiprocessing import _prctl_pr_set_pdeathsig  # type: ignore[attr-defined]

    signal.set_wakeup_fd(-1)  # a forked worker has its parent's
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)
    _prctl_pr_set_pdeathsig(signal.SIGKILL)
