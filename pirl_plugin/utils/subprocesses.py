"""Run a command and follow what it prints, line by line, with all of it kept in a log."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pirl_plugin.utils.interrupts import Interrupted, outlive_terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path
    from types import FrameType

_running: set[subprocess.Popen[str]] = set()


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Attributes:
        status: its exit status; negative for the signal that ended it.
        tail: the last lines that it printed, with their line ends.
        timed_out: whether it was killed at its time limit.
    """

    status: int
    tail: tuple[str, ...]
    timed_out: bool = False

    @property
    def last(self) -> str:
        """The last line that is not empty; ``""`` where it printed none."""
        return next((line.strip() for line in reversed(self.tail) if line.strip()), "")


def stream(
    command: Sequence[str],
    on_line: Callable[[str], object] = lambda line: None,
    log: Path | None = None,
    append: bool = False,
    environment: Mapping[str, str] | None = None,
    inherited: Sequence[int] = (),
    keep: int = 15,
    own_session: bool = False,
    seconds: float | None = None,
) -> Ended:
    """Run a command; standard output and standard error are read as one.

    Args:
        command: program and arguments.
        on_line: called with each line as it comes, with its line end. Where it returns True, the
            command and all that it started are killed.
        log: file that gets all lines; its folder must exist.
        append: whether the log goes on where it ended.
        environment: variables over this process's own. Python's output is never buffered.
        inherited: file descriptors that the command keeps open as long as it lives.
        keep: lines of the end that are returned.
        own_session: whether the command leads a session, so that its workers are killed with it.
            A Ctrl-C then does not reach it, and whatever ends this call kills it.
        seconds: time limit, at which the command is killed; None for none.
    """
    timed_out = threading.Event()
    tail: deque[str] = deque(maxlen=keep)
    with (
        open(log or os.devnull, "a" if append else "w") as file,
        subprocess.Popen(
            command,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})},
            text=True,
            errors="replace",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=tuple(inherited),
            start_new_session=own_session,
        ) as process,
        _known(process),
    ):

        def kill() -> None:
            with contextlib.suppress(ProcessLookupError):
                if own_session:
                    os.killpg(process.pid, signal.SIGKILL)
                process.kill()

        def time_out() -> None:
            timed_out.set()
            kill()

        timer = threading.Timer(seconds or 0, time_out)
        timer.daemon = True
        if seconds is not None:
            timer.start()
        try:
            for line in process.stdout or ():
                file.write(line)
                file.flush()
                tail.append(line)
                if on_line(line) is True:
                    kill()
                    break
        except BaseException as error:
            if own_session:
                kill()
            elif isinstance(error, Interrupted):  # it ends, and says how
                file.writelines(process.stdout or ())
            raise
        finally:
            timer.cancel()
    return Ended(process.returncode, tuple(tail), timed_out.is_set())


@contextlib.contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """SIGTERM ends what this process has started, as it ends itself: each run saves first.

    The commands of ``stream`` and the processes of ``multiprocessing`` get the signal, and
    :class:`Interrupted` is raised in the main thread, where this must be called. (Ctrl-C needs no
    such help: a terminal sends SIGINT to all of them.) A second SIGTERM meanwhile is ignored. A
    terminal that is closed ends nothing.
    """
    outlive_terminal()

    def end(signum: int, frame: FrameType | None) -> None:
        signal.signal(signum, signal.SIG_IGN)
        for command in list(_running):
            command.terminate()
        for process in multiprocessing.active_children():
            process.terminate()
        raise Interrupted(signum)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _known(process: subprocess.Popen[str]) -> Iterator[None]:
    _running.add(process)
    try:
        yield
    finally:
        _running.discard(process)
