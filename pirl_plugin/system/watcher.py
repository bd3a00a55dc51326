"""End a process early, on signals or without progress.

While a read does not return, or a collective waits, the main thread runs no Python code. So a
separate thread watches, and ends the process.

Rows *signal*, *ignored signal* and *second signal* of "How a command ends" (docs/architecture.md).
"""

from __future__ import annotations

import math
import multiprocessing
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import resource_tracker, util
from pathlib import Path
from types import FrameType
from typing import Any

from pirl_plugin.system.failures import PREFIX, record
from pirl_plugin.system.processes import GRACE_S, kill_workers
from pirl_plugin.system.waits import PAUSE_S, Limit, Wait

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
"""Signals from users, SLURM and other clusters before a kill; submitit requeues on SIGUSR2."""
THREAD = "pirl_plugin watcher"
# These signals end a process if they arrive a second time. SLURM's SIGUSR1 only asks again.
_ENDING = (signal.SIGINT, signal.SIGTERM)
# One Ctrl-C reaches launcher and ranks, and the launcher forwards it to the ranks again.
_SAME_SIGNAL_S = 2.0
_END_OF_THREAD = 0  # no signal has this number


class Interrupted(SystemExit):
    """A signal ends this process; the exit status is 128 plus its number.

    Attributes:
        number: the signal's number.
        resumes: whether the same command would resume; set by :func:`resumable`.
    """

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.number = number
        self.resumes = False

    @property
    def sentence(self) -> str:
        """The sentence that :func:`watching` prints."""
        text = f"{PREFIX}interrupted by {signal.Signals(self.number).name}"
        return f"{text}. Run the same command again to resume." if self.resumes else text


def _print_at_once(text: str) -> None:
    """Print a sentence even if the main thread holds the lock of ``sys.stderr``."""
    os.write(2, f"{text}\n".encode(sys.stderr.encoding or "utf-8", "backslashreplace"))


@dataclass(eq=False)
class Watcher:
    """Handles a process's stopping signals, and watches its main thread from another thread.

    Attributes:
        is_active: whether this process is watched.
        report: prints a sentence; in a spawned rank, sends it to the launcher.
        requested: number of the signal that asked this process to end; 0 for none.
        polled: whether training reads ``requested`` after each step; then no signal interrupts it.
        waits: what the main thread waits for: a batch, and within it an image.
        limit: how long it may wait.
        commands: child processes from ``subprocess`` that handle signals themselves.
        temporary_files: files to remove if this process ends at once.
    """

    is_active: bool = False
    report: Callable[[str], None] = _print_at_once
    requested: int = 0
    polled: bool = False
    waits: list[Wait] = field(default_factory=list)
    limit: Limit = field(default_factory=Limit)
    commands: list[subprocess.Popen[Any]] = field(default_factory=list)
    temporary_files: set[Path] = field(default_factory=set)
    _first_signal: tuple[int, float] = (0, math.inf)  # its number, and its time in seconds
    _last_progress: tuple[Wait, object] | None = None
    _waited_s: float = 0.0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Forward a signal to child processes, or end this one unless training will.

        Raises:
            Interrupted: on the first signal, if no step and no child process will end this one.
        """
        is_first = not self.requested
        self.requested = number
        children = self.children()
        for child in children:
            if child.pid is not None:
                with suppress(OSError):
                    os.kill(child.pid, number)
        # A second exception would interrupt the cleanup after the first one.
        if is_first and not children and not self.polled:
            raise Interrupted(number)

    def children(self) -> list[Any]:
        """Return the ranks and commands that this process started, without loader workers."""
        ranks = [child for child in multiprocessing.active_children() if not child.daemon]
        return [*ranks, *self.commands]

    def watch(self, pipe: int) -> None:
        """Watch signals and waits until :func:`watching` ends this thread.

        Args:
            pipe: the reading end. Python's C code writes each signal's number to the other end,
                even while the main thread runs no handler.
        """
        number = None
        while number != _END_OF_THREAD:
            is_readable, _, _ = select.select([pipe], [], [], PAUSE_S)
            if is_readable:
                number = os.read(pipe, 1)[0]
                if number in STOPPING:  # not SIGCHLD, for which torch's loaders have a handler
                    self._end_on_second_signal(number)
            else:
                self._end_without_progress()
            self._end_on_ignored_signal()

    def current_wait(self) -> Wait | None:
        """Return the main thread's innermost wait; None if it computes."""
        waits = list(self.waits)  # the main thread changes it
        return waits[-1] if waits else None

    def _end_on_second_signal(self, number: int) -> None:
        """End the process on a second signal."""
        now = time.monotonic()
        first_number, first_time = self._first_signal
        if not first_number:
            self._first_signal = (number, now)
        elif number in _ENDING and now - first_time >= _SAME_SIGNAL_S:
            waits_for_children = bool(self.children())  # they got the signal too
            while self.children() and time.monotonic() < now + GRACE_S:
                time.sleep(PAUSE_S)
            if waits_for_children and not self.children():
                return  # the main thread waited for them only, and ends the process
            name = signal.Signals(number).name
            self.end_process(f"{PREFIX}ended at once by a second {name}", 128 + number)

    def _end_on_ignored_signal(self) -> None:
        """End the process if a read keeps the main thread from ending it.

        No signal interrupts a read from a lost network disk.
        """
        number, signal_time = self._first_signal
        if self.polled or time.monotonic() - signal_time < GRACE_S:
            return
        handler_ran = self.requested != 0
        if not handler_ran or self.current_wait() is not None:
            self.end_process(Interrupted(number).sentence, 128 + number)

    def _end_without_progress(self) -> None:
        """End the process if it waits too long, and write its stack to ``failure.txt``.

        This counts pauses, and not the time in which the process was suspended, as by Ctrl-Z.
        """
        wait = self.current_wait()
        if wait is None:
            return
        progress = (wait, wait.progress())
        self._waited_s = self._waited_s + PAUSE_S if progress == self._last_progress else 0.0
        self._last_progress = progress
        if self._waited_s < 60 * self.limit.minutes:
            return
        frame = sys._current_frames()[threading.main_thread().ident or 0]
        stack = "Main thread's stack:\n" + "".join(traceback.format_stack(frame))
        text = f"{PREFIX}{self.limit.sentence(wait)}"
        self.end_process(record(text, stack, self.limit.folder) or text, 1)

    def end_process(self, text: str, status: int) -> None:
        """End this process and its children at once, from any thread.

        Args:
            text: sentence for the console.
            status: the exit status.
        """
        self.report(text)
        children: list[Any] = [*multiprocessing.active_children(), *self.commands]
        for child in children:
            child.kill()
        for path in self.temporary_files:
            with suppress(OSError):
                path.unlink(missing_ok=True)
        with suppress(OSError):  # sockets of loader workers, which multiprocessing removes at exit
            shutil.rmtree(util.get_temp_dir())
        os._exit(status)


def current() -> Watcher:
    """Return the watcher that :func:`watching` started in this process, or one without a thread."""
    handler = signal.getsignal(signal.SIGTERM)
    return handler if isinstance(handler, Watcher) else Watcher()


@contextmanager
def waiting(wait: Wait) -> Iterator[None]:
    """Limit how long a block may wait for a batch, an image or a folder, if there is a watcher."""
    waits = current().waits
    waits.append(wait)
    try:
        yield
    finally:
        waits.remove(wait)


@contextmanager
def deferring() -> Iterator[None]:
    """Delay signals until after a block that starts processes, if this process is watched.

    The processes inherit blocked signals, so none is lost until they are watched. Loader workers
    are not, and no signal to the process group ends them.

    Raises:
        Interrupted: after the block.
    """
    watcher = current()
    if not watcher.is_active:
        yield
        return
    # With Python 3.11 and 3.12, starting the tracker unblocks signals.
    resource_tracker.ensure_running()
    watcher.polled = True
    unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
        watcher.polled = False
    if watcher.requested:
        raise Interrupted(watcher.requested)


@contextmanager
def resumable(resumes: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """If a signal ends the process within a block, tell the user that the same command resumes.

    Args:
        resumes: returns whether that is true, when the signal arrives.
    """
    try:
        yield
    except Interrupted as interrupted:
        interrupted.resumes = resumes()
        raise


@contextmanager
def removed_at_end(path: Path) -> Iterator[None]:
    """Remove a file after a block, also if the watcher ends this process within it."""
    files = current().temporary_files
    files.add(path)
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink(missing_ok=True)
        files.discard(path)


@contextmanager
def watching(report: Callable[[str], None] = _print_at_once) -> Iterator[None]:
    """Watch this process: handle the signals in :data:`STOPPING`, and limit waits.

    The first signal asks training to save and end, and ends any other work. A second SIGINT or
    SIGTERM ends the process at once. SIGHUP is ignored. After the block, loader workers are ended,
    and the previous handler, such as submitit's, is called with the received signal.

    Does nothing if the process is already watched, or outside the main thread, which alone receives
    signals.

    Args:
        report: prints the sentence if a process ends at once.

    Raises:
        Interrupted: a signal arrived outside training, and no child process handles it.
    """
    if current().is_active or threading.current_thread() is not threading.main_thread():
        yield
        return
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    reader, writer = os.pipe()
    os.set_blocking(writer, False)  # set_wakeup_fd requires it
    watcher = Watcher(is_active=True, report=report)
    previous = {number: signal.signal(number, watcher) for number in STOPPING}
    previous_descriptor = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    thread = threading.Thread(target=watcher.watch, args=(reader,), name=THREAD, daemon=True)
    thread.start()
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)  # see deferring()
        yield
    except Interrupted as interrupted:
        if multiprocessing.parent_process() is None:  # for a rank, the launcher prints it
            print(interrupted.sentence, file=sys.stderr)
        raise
    finally:
        # No signal may interrupt the following, which takes a moment.
        for number in STOPPING:
            signal.signal(number, signal.SIG_IGN)
        signal.set_wakeup_fd(previous_descriptor)
        # Python would send them SIGTERM, which they ignore, and wait for them.
        kill_workers()
        # The thread must not outlive the interpreter: freeing tensors then would abort the process.
        # Closing the pipe would not end it, because forked workers have the pipe open too.
        os.write(writer, bytes([_END_OF_THREAD]))
        thread.join()
        os.close(reader)
        os.close(writer)
        for number, previous_handler in previous.items():
            signal.signal(number, previous_handler)
        received = watcher.requested
        # Python's own SIGINT handler would raise KeyboardInterrupt instead of the exception that
        # ends the run, which has the sentence and the exit status.
        if received and received != signal.SIGINT:
            previous_handler = previous[signal.Signals(received)]
            if callable(previous_handler):
                previous_handler(received, None)


def run_command(command: Sequence[str], **options: Any) -> int:
    """Run a command that handles signals itself; forward them to it, and return its exit status.

    Args:
        command: the program and its arguments.
        **options: options for ``subprocess.Popen``.
    """
    commands = current().commands
    with subprocess.Popen(command, **options) as process:
        commands.append(process)
        try:
            return process.wait()
        finally:
            commands.remove(process)
