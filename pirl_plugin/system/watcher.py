"""What ends a process early: signals, a read that takes too long, and a killed loader worker.

The main thread runs no Python code while a read does not return, or while it waits in a collective.
So one other thread watches: it ends the process at a second signal, or after a time limit.
"""

from __future__ import annotations

import multiprocessing
import os
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import connection
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from pirl_plugin.system.failures import PREFIX, record
from pirl_plugin.system.processes import how_it_ended

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that users, SLURM and other clusters send before a kill. submitit requeues on SIGUSR2."""
TIMEOUT_MINUTES = 10.0
"""The longest time in which a command reads no other image."""
GRACE_S = 5.0
"""Time for the other ranks to end by themselves, seconds."""
THREAD = "pirl_plugin watcher"
# Second signals that end a process. SLURM's SIGUSR1 only asks again.
_ENDING = (signal.SIGINT, signal.SIGTERM)
# One Ctrl-C reaches the launcher and its ranks, and the launcher sends it to its ranks again.
_SAME_SIGNAL_S = 2.0
_PAUSE_S = 0.5


class Interrupted(SystemExit):
    """A signal ends this process outside training; the exit status is 128 plus its number.

    Attributes:
        sentence: what :func:`watching` prints.
    """

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.code: int = 128 + number
        name = signal.Signals(number).name
        self.sentence = f"{PREFIX}{name}: ended; the same command continues from what is saved"


class KilledWorkerError(RuntimeError):
    """A loader's worker was killed, so that its batches are lost."""


class Reader(Protocol):
    """A source of images."""

    def being_read(self) -> list[str]:
        """Return the paths that this process and its loader workers read at this moment."""


@dataclass(eq=False)
class Wait:
    """A wait for images, which ends this process if none is read for too long.

    Attributes:
        sources: where the images come from.
        minutes: the longest time in which the same images are read.
        key: of the configuration, if it has the limit.
        folder: folder for ``failure.txt``; None for a temporary folder.
    """

    sources: Sequence[Reader]
    minutes: float
    key: str = ""
    folder: Path | None = None
    _last_paths: Sequence[str] = ()
    _waited_s: float = 0.0

    def is_over(self) -> bool:
        """Return whether the limit is reached; the watcher calls it after each of its pauses.

        It counts the pauses. So the time in which the whole process was suspended, as by Ctrl-Z,
        does not count.
        """
        paths = self._being_read()
        is_same = bool(paths) and paths == self._last_paths
        self._waited_s = self._waited_s + _PAUSE_S if is_same else 0.0
        self._last_paths = paths
        return self._waited_s >= 60 * self.minutes

    def sentence(self) -> str:
        """Return the sentence about a read that takes too long."""
        paths = self._being_read()
        activity = f"reading {', '.join(paths[:3])}" if paths else "a read"
        key = f" ({self.key})" if self.key else ""
        return (
            f"no image was read for {self.minutes:g} minutes{key}: {activity} does not return; "
            f"check the file and its disk or mount, and start again"
        )

    def _being_read(self) -> list[str]:
        return [path for source in self.sources for path in source.being_read()]


@dataclass(eq=False)
class Watcher:
    """The handler of a process's stopping signals, and the thread that watches its main thread.

    Attributes:
        reader: end of a pipe, to which Python's own C code writes the number of each signal, also
            while the main thread runs no handler. When its other end is closed, the thread ends.
        requested: number of the signal that asked this process to end; 0 for none.
        polled: whether training reads ``requested`` after each step. Then no signal stops it.
        waits: for images, at this moment.
    """

    reader: int
    requested: int = 0
    polled: bool = False
    waits: list[Wait] = field(default_factory=list)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal: forward it to ranks, and end this process unless training will.

        Raises:
            Interrupted: no step and no rank will end this process.
        """
        self.requested = number
        ranks = _ranks()
        for process in ranks:
            if process.pid is not None:
                with suppress(OSError):
                    os.kill(process.pid, number)
        if not ranks and not self.polled:
            kill_workers()  # torch would wait five seconds for a worker whose read hangs
            raise Interrupted(number)

    def watch(self) -> None:
        """Watch signals and waits until the pipe is closed."""
        first_signal_at: float | None = None
        while True:
            is_readable, _, _ = select.select([self.reader], [], [], _PAUSE_S)
            if is_readable:
                byte = os.read(self.reader, 1)
                if not byte:
                    break
                first_signal_at = _heed(byte[0], first_signal_at)
                continue
            for wait in list(self.waits):
                if wait.is_over():
                    _end_wait(wait)
        os.close(self.reader)


def current() -> Watcher | None:
    """Return the watcher that :func:`watching` has started in this process; None without one."""
    handler = signal.getsignal(signal.SIGTERM)
    return handler if isinstance(handler, Watcher) else None


def requested() -> int:
    """Return the number of the signal that asked this process to end; 0 for none."""
    watcher = current()
    return watcher.requested if watcher is not None else 0


@contextmanager
def waiting(wait: Wait) -> Iterator[None]:
    """Limit a wait for images in a block, if there is a watcher, and name a worker that was killed.

    Raises:
        KilledWorkerError: a loader worker of this process was killed.
    """
    watcher = current()
    waits = [] if watcher is None else watcher.waits
    waits.append(wait)
    try:
        yield
    except (EOFError, OSError) as error:
        if cause := killed_worker():
            raise KilledWorkerError(cause) from error
        raise
    finally:
        waits.remove(wait)


@contextmanager
def watching() -> Iterator[None]:
    """Watch this process: handle the signals of :data:`STOPPING`, and limit its waits.

    The first signal asks training to save and to end, and ends any other work. A second SIGINT or
    SIGTERM ends the process at once. SIGHUP is ignored. At the end of the block, end the loader
    workers, and call the previous handler, such as submitit's, with the received signal.

    Nothing happens if the process is watched already, or outside the main thread, which alone
    receives signals.

    Raises:
        Interrupted: a signal arrived outside training, and no rank process was running.
    """
    if current() is not None or threading.current_thread() is not threading.main_thread():
        yield
        return
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    reader, writer = os.pipe()
    os.set_blocking(writer, False)  # as set_wakeup_fd demands it
    watcher = Watcher(reader)
    previous = {}
    for number in STOPPING:
        previous[number] = signal.signal(number, watcher)
    previous_descriptor = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    thread = threading.Thread(target=watcher.watch, name=THREAD, daemon=True)
    thread.start()
    try:
        yield
    except Interrupted as interrupted:
        if multiprocessing.parent_process() is None:  # a rank's launcher prints it
            print(interrupted.sentence, file=sys.stderr)
        raise
    finally:
        signal.set_wakeup_fd(previous_descriptor)
        os.close(writer)  # ends the thread
        # It must not outlive the interpreter: a thread that frees tensors then aborts the process.
        thread.join()
        # Python would send them SIGTERM, which they ignore, and wait for them.
        kill_workers()
        for number, previous_handler in previous.items():
            signal.signal(number, previous_handler)
        received = watcher.requested
        # Python's own handler of SIGINT would raise KeyboardInterrupt in place of the exception
        # that ends the run, which has the sentence and the exit status.
        if received and received != signal.SIGINT:
            previous_handler = previous[signal.Signals(received)]
            if callable(previous_handler):
                previous_handler(received, None)


def _ranks() -> list[Any]:
    """Return the children that are ranks: loader workers are daemons."""
    return [process for process in multiprocessing.active_children() if not process.daemon]


def _heed(number: int, first_signal_at: float | None) -> float | None:
    """End the process at a second signal; return the time of the first."""
    if number not in STOPPING:  # such as SIGCHLD, for which torch's loaders have a handler
        return first_signal_at
    now = time.monotonic()
    if first_signal_at is None:
        return now
    if number in _ENDING and now - first_signal_at >= _SAME_SIGNAL_S:
        if _ranks():
            time.sleep(GRACE_S)  # the launcher: its ranks got the signal too
        name = signal.Signals(number).name
        end_process(
            f"{PREFIX}{name} again: ended at once, without saving; the same command continues "
            f"from what was saved before",
            128 + number,
        )
    return first_signal_at


def _end_wait(wait: Wait) -> None:
    """End the process, and leave the stack of the main thread in ``failure.txt``."""
    frame = sys._current_frames()[threading.main_thread().ident or 0]
    stack = "Stack of the main thread:\n" + "".join(traceback.format_stack(frame))
    text = f"{PREFIX}{wait.sentence()}"
    end_process(record(text, stack, wait.folder) or text, 1)


def end_process(text: str, status: int) -> None:
    """End this process and its children at once, from any thread.

    Args:
        text: the sentence for the console. A spawned rank does not print it, its launcher does.
        status: the exit status.
    """
    if multiprocessing.parent_process() is None:
        # The main thread may hold the lock of sys.stderr.
        os.write(2, f"{text}\n".encode(sys.stderr.encoding or "utf-8", "backslashreplace"))
    for child in multiprocessing.active_children():
        child.kill()
    os._exit(status)


def killed_worker() -> str:
    """Return the sentence about a loader worker of this process that was killed; empty if none was.

    A batch stays in the memory of its worker until this process asks the worker for it. If the
    worker has ended, the error is that a connection is refused or closed. Otherwise torch notices
    the end, and names it.
    """
    workers: list[Any] = [child for child in multiprocessing.process._children if child.daemon]  # type: ignore[attr-defined]
    # A worker's connection closes shortly before its end.
    ended = connection.wait([worker.sentinel for worker in workers], timeout=1)
    for worker in workers:
        if worker.sentinel in ended:
            worker.join()
            if worker.exitcode:
                return f"a loader process {how_it_ended(worker.exitcode)}"
    return ""


def kill_workers() -> None:
    """Kill the loader workers of this process, whose main thread calls it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # torch's handler would raise their end
    for child in multiprocessing.active_children():
        if child.daemon:
            child.kill()
