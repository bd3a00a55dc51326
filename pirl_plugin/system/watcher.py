"""What ends a process early: signals, a read that takes too long, and a killed loader worker.

The main thread runs no Python code while a read does not return, or while it waits in a collective.
So one other thread watches: it ends the process at a second signal, or after a time limit.
"""

from __future__ import annotations

import multiprocessing
import os
import select
import signal
import subprocess
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
"""The longest time that a command waits for one image."""
GRACE_S = 5.0
"""Time for child processes to end by themselves, seconds."""
THREAD = "pirl_plugin watcher"
# Second signals that end a process. SLURM's SIGUSR1 only asks again.
_ENDING = (signal.SIGINT, signal.SIGTERM)
# One Ctrl-C reaches the launcher and its ranks, and the launcher sends it to its ranks again.
_SAME_SIGNAL_S = 2.0
_PAUSE_S = 0.5
_END_OF_THREAD = b"\0"  # no signal has this number


class Interrupted(SystemExit):
    """A signal ends this process; the exit status is 128 plus its number.

    Attributes:
        number: the signal.
        resumes: whether the same command would resume; :func:`resumable` sets it.
    """

    def __init__(self, number: int, resumes: bool = False) -> None:
        super().__init__(128 + number)
        self.code: int = 128 + number
        self.number = number
        self.resumes = resumes

    @property
    def sentence(self) -> str:
        """What :func:`watching` prints."""
        text = f"{PREFIX}interrupted by {signal.Signals(self.number).name}"
        return f"{text}. Run the same command again to resume." if self.resumes else text


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
        pipe: its end for reading. Python's own C code writes the number of each signal to the other
            end, even while the main thread runs no handler.
        requested: number of the signal that asked this process to end; 0 for none.
        polled: whether training reads ``requested`` after each step. Then no signal stops it.
        waits: for images, at this moment.
        commands: child processes of ``subprocess`` that handle signals themselves.
        temporary_files: removed if this process ends at once.
    """

    pipe: int
    requested: int = 0
    polled: bool = False
    waits: list[Wait] = field(default_factory=list)
    commands: list[subprocess.Popen[Any]] = field(default_factory=list)
    temporary_files: set[Path] = field(default_factory=set)
    _first_signal_at: float | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal: forward it to child processes, or end this one unless training will.

        Raises:
            Interrupted: at the first signal, if no step and no child process will end this one.
        """
        is_first = not self.requested
        self.requested = number
        children = self.children()
        for child in children:
            if child.pid is not None:
                with suppress(OSError):
                    os.kill(child.pid, number)
        # A second exception would interrupt what cleans up after the first one.
        if is_first and not children and not self.polled:
            kill_workers()  # torch would wait five seconds for a worker whose read hangs
            raise Interrupted(number)

    def children(self) -> list[Any]:
        """Return the ranks and commands that this process has started, but no loader worker."""
        ranks = [child for child in multiprocessing.active_children() if not child.daemon]
        return [*ranks, *self.commands]

    def watch(self) -> None:
        """Watch signals and waits, until :func:`watching` ends this thread."""
        while True:
            is_readable, _, _ = select.select([self.pipe], [], [], _PAUSE_S)
            if is_readable:
                byte = os.read(self.pipe, 1)
                if byte == _END_OF_THREAD:
                    return
                self._heed(byte[0])
                continue
            for wait in list(self.waits):
                if wait.is_over():
                    self._end_wait(wait)

    def _heed(self, number: int) -> None:
        """End the process at a second signal."""
        if number not in STOPPING:  # such as SIGCHLD, for which torch's loaders have a handler
            return
        now = time.monotonic()
        if self._first_signal_at is None:
            self._first_signal_at = now
        elif number in _ENDING and now - self._first_signal_at >= _SAME_SIGNAL_S:
            until = now + GRACE_S
            while self.children() and time.monotonic() < until:  # they got the signal too
                time.sleep(_PAUSE_S)
            name = signal.Signals(number).name
            self.end_process(f"{PREFIX}ended at once by a second {name}", 128 + number)

    def _end_wait(self, wait: Wait) -> None:
        """End the process, and leave the stack of the main thread in ``failure.txt``."""
        frame = sys._current_frames()[threading.main_thread().ident or 0]
        stack = "Stack of the main thread:\n" + "".join(traceback.format_stack(frame))
        text = f"{PREFIX}{wait.sentence()}"
        self.end_process(record(text, stack, wait.folder) or text, 1)

    def end_process(self, text: str, status: int) -> None:
        """End this process and its children at once, from any thread.

        Args:
            text: the sentence for the console. A spawned rank does not print it, its launcher does.
            status: the exit status.
        """
        if multiprocessing.parent_process() is None:
            # The main thread may hold the lock of sys.stderr.
            os.write(2, f"{text}\n".encode(sys.stderr.encoding or "utf-8", "backslashreplace"))
        children: list[Any] = [*multiprocessing.active_children(), *self.commands]
        for child in children:
            child.kill()
        for path in self.temporary_files:
            with suppress(OSError):
                path.unlink(missing_ok=True)
        os._exit(status)


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
    """Limit a wait for images in a block, if there is a watcher."""
    watcher = current()
    waits = [] if watcher is None else watcher.waits
    waits.append(wait)
    try:
        yield
    finally:
        waits.remove(wait)


@contextmanager
def deferring() -> Iterator[None]:
    """Let a signal interrupt after a block that starts processes, not in it.

    Raises:
        Interrupted: at the end.
    """
    watcher = current()
    if watcher is None:
        yield
        return
    watcher.polled = True
    yield
    watcher.polled = False
    if watcher.requested:
        raise Interrupted(watcher.requested)


@contextmanager
def resumable() -> Iterator[None]:
    """Tell the user that the same command resumes, if a signal ends the process in a block."""
    try:
        yield
    except Interrupted as interrupted:
        interrupted.resumes = True
        raise


@contextmanager
def removed_at_end(path: Path) -> Iterator[None]:
    """Remove a file at the end of a block, and if the watcher ends this process in it."""
    watcher = current()
    files = set() if watcher is None else watcher.temporary_files
    files.add(path)
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink(missing_ok=True)
        files.discard(path)


@contextmanager
def watching() -> Iterator[None]:
    """Watch this process: handle the signals of :data:`STOPPING`, and limit its waits.

    The first signal asks training to save and to end, and ends any other work. A second SIGINT or
    SIGTERM ends the process at once. SIGHUP is ignored. At the end of the block, end the loader
    workers, and call the previous handler, such as submitit's, with the received signal.

    Nothing happens if the process is watched already, or outside the main thread, which alone
    receives signals.

    Raises:
        Interrupted: a signal arrived outside training, and no child process handles it.
    """
    if current() is not None or threading.current_thread() is not threading.main_thread():
        yield
        return
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    reader, writer = os.pipe()
    os.set_blocking(writer, False)  # set_wakeup_fd requires it
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
        # What follows takes a moment, and no signal may interrupt it.
        for number in STOPPING:
            signal.signal(number, signal.SIG_IGN)
        signal.set_wakeup_fd(previous_descriptor)
        # Python would send them SIGTERM, which they ignore, and wait for them.
        kill_workers()
        # The thread must not outlive the interpreter: if it frees tensors then, the process aborts.
        # Closing the pipe would not end it: forked workers have the pipe open, too.
        os.set_blocking(writer, True)
        os.write(writer, _END_OF_THREAD)
        thread.join()
        os.close(reader)
        os.close(writer)
        for number, previous_handler in previous.items():
            signal.signal(number, previous_handler)
        received = watcher.requested
        # Python's own handler of SIGINT would raise KeyboardInterrupt in place of the exception
        # that ends the run, which has the sentence and the exit status.
        if received and received != signal.SIGINT:
            previous_handler = previous[signal.Signals(received)]
            if callable(previous_handler):
                previous_handler(received, None)


def run_command(command: Sequence[str], **options: Any) -> int:
    """Run a command that handles signals itself; forward them to it, and return its exit status.

    Args:
        command: the program and its arguments.
        **options: of ``subprocess.Popen``.
    """
    watcher = current()
    commands = [] if watcher is None else watcher.commands
    with subprocess.Popen(command, **options) as process:
        commands.append(process)
        try:
            return process.wait()
        except BaseException:  # without a watcher, such as a KeyboardInterrupt
            process.terminate()
            raise
        finally:
            commands.remove(process)


def loader_workers() -> list[Any]:
    """Return the loader workers of this process, also those that have ended unnoticed."""
    children = multiprocessing.process._children  # type: ignore[attr-defined]
    return [child for child in children if child.daemon]


def killed_worker(workers: Sequence[Any]) -> str:
    """Return the sentence about a loader worker that was killed; empty if none was.

    A batch stays in the memory of its worker until this process asks the worker for it. If the
    worker has ended, the error is that a connection is refused or closed. Otherwise torch notices
    the end, and raises a RuntimeError.
    """
    with _deaf_to_ends():
        # A worker's connection closes shortly before its end.
        ended = connection.wait([worker.sentinel for worker in workers], timeout=1)
        for worker in workers:
            if worker.sentinel in ended:
                worker.join()
                if worker.exitcode:
                    return f"a loader process {how_it_ended(worker.exitcode)}"
    return ""


def kill_workers() -> None:
    """Kill the loader workers of this process."""
    with _deaf_to_ends():
        workers = loader_workers()
        for worker in workers:
            worker.kill()
        for worker in workers:
            worker.join(GRACE_S)


@contextmanager
def _deaf_to_ends() -> Iterator[None]:
    """Switch off torch's handler of SIGCHLD, which raises an exception when a worker ends."""
    if threading.current_thread() is not threading.main_thread():  # handlers run only in that one
        yield
        return
    handler = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, handler)
