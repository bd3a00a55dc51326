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
from pirl_plugin.system.waits import PAUSE_S, Wait, Waits

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
"""Signals from users, SLURM and other clusters before a kill; submitit requeues on SIGUSR2."""
THREAD = "pirl_plugin watcher"
# These signals end a process if they arrive a second time. SLURM's SIGUSR1 only asks again.
_ENDING = (signal.SIGINT, signal.SIGTERM)
# One Ctrl-C reaches launcher and ranks, and the launcher forwards it to the ranks again.
_SAME_SIGNAL_S = 2.0
_END_OF_THREAD = 0  # no signal has this number


class Interrupted(SystemExit):
    """A signal ends this process; the exit status is 128 plus the signal's number."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.number = number
        self.resumes = False  # see resumable()

    @property
    def sentence(self) -> str:
        """The sentence for the console."""
        text = f"{PREFIX}interrupted by {signal.Signals(self.number).name}"
        return f"{text}. Run the same command again to resume." if self.resumes else text


def _print_at_once(text: str) -> None:
    """Print a sentence even if the main thread holds the lock of ``sys.stderr``."""
    os.write(2, f"{text}\n".encode(sys.stderr.encoding or "utf-8", "backslashreplace"))


@dataclass(eq=False)
class Watcher:
    """Handles a process's stopping signals, and watches its main thread from another thread."""

    is_active: bool = False  # whether this process is watched
    report: Callable[[str], None] = _print_at_once  # a spawned rank tells its launcher
    requested: int = 0  # number of the signal that asked this process to end; 0 for none
    polled: bool = False  # training reads ``requested`` after each step; no signal interrupts it
    waits: Waits = field(default_factory=Waits)
    folder: Path | None = None  # for ``failure.txt``; None for a temporary folder
    temporary_files: set[Path] = field(default_factory=set)  # to remove in end_process()
    _first_signal: tuple[int, float] = (0, math.inf)  # its number, and its time in seconds

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Forward a signal to the ranks, or end this process unless training will."""
        is_first = not self.requested
        self.requested = number
        ranks = _ranks()
        for rank in ranks:
            with suppress(OSError):
                os.kill(rank.pid, number)
        # A second exception would interrupt the cleanup after the first one.
        if is_first and not ranks and not self.polled:
            raise Interrupted(number)

    def watch(self, pipe: int) -> None:
        """Watch signals and waits until :func:`watching` ends this thread.

        Python's C code writes each signal's number to the other end of the pipe, even while the
        main thread runs no handler.
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

    def _end_on_second_signal(self, number: int) -> None:
        now = time.monotonic()
        first_number, first_time = self._first_signal
        if not first_number:
            self._first_signal = (number, now)
        elif number in _ENDING and now - first_time >= _SAME_SIGNAL_S:
            waits_for_ranks = bool(_ranks())  # they got the signal too
            while _ranks() and time.monotonic() < now + GRACE_S:
                time.sleep(PAUSE_S)
            if waits_for_ranks and not _ranks():
                return  # the main thread waited for them only, and ends the process
            name = signal.Signals(number).name
            self.end_process(f"{PREFIX}ended at once by a second {name}", 128 + number)

    def _end_on_ignored_signal(self) -> None:
        """End the process if the main thread cannot, because no signal interrupts its read."""
        number, signal_time = self._first_signal
        if self.polled or time.monotonic() - signal_time < GRACE_S:
            return
        handler_ran = self.requested != 0
        if not handler_ran or self.waits.innermost() is not None:
            self.end_process(Interrupted(number).sentence, 128 + number)

    def _end_without_progress(self) -> None:
        """End the process if it waits too long, with its stack in ``failure.txt``."""
        sentence = self.waits.look()
        if sentence:
            text = f"{PREFIX}{sentence}"
            frame = sys._current_frames()[threading.main_thread().ident or 0]
            stack = "Main thread's stack:\n" + "".join(traceback.format_stack(frame))
            self.end_process(record(text, stack, self.folder), 1)

    def end_process(self, text: str, status: int) -> None:
        """Print a sentence, and end this process and its children at once, from any thread."""
        self.report(text)
        for child in multiprocessing.active_children():
            child.kill()
        for path in self.temporary_files:
            with suppress(OSError):
                path.unlink(missing_ok=True)
        with suppress(OSError):  # sockets of loader workers, which multiprocessing removes at exit
            shutil.rmtree(util.get_temp_dir())
        os._exit(status)


def _ranks() -> list[Any]:
    """Return the ranks that this process started; loader workers are daemons."""
    return [child for child in multiprocessing.active_children() if not child.daemon]


def current() -> Watcher:
    """Return the watcher that :func:`watching` started in this process, or one without a thread."""
    handler = signal.getsignal(signal.SIGTERM)
    return handler if isinstance(handler, Watcher) else Watcher()


@contextmanager
def waiting(
    activity: Callable[[], str] = str, progress: Callable[[], object] = lambda: None
) -> Iterator[None]:
    """Limit how long a block may wait for a batch, an image or a folder; see :class:`Wait`."""
    wait = Wait(activity, progress)
    waits = current().waits.open
    waits.append(wait)
    try:
        yield
    finally:
        waits.remove(wait)


@contextmanager
def deferring() -> Iterator[None]:
    """Delay signals until after a block that starts processes, if this process is watched.

    The processes inherit blocked signals: no signal is lost before they watch for it, and none to
    the process group ends loader workers.
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
    """Tell the user, if a signal ends the process within a block, that the same command resumes.

    ``resumes`` returns whether that is true.
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

    SIGHUP is ignored. After the block, loader workers are ended, and the previous handler, such as
    submitit's, is called with the received signal. Does nothing if the process is already watched,
    or outside the main thread, which alone receives signals.
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
        for number in STOPPING:  # none may interrupt the following
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
    """Run a command that handles signals itself, and return its exit status."""
    with subprocess.Popen(command, **options) as process:
        try:
            return process.wait()
        except Interrupted as interrupted:
            process.send_signal(interrupted.number)
            process.wait()
            raise
