"""Run a command and follow what it prints, line by line, with all of it kept in a log."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path


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
        except BaseException:
            if own_session:
                kill()
            raise
        finally:
            timer.cancel()
    return Ended(process.returncode, tuple(tail), timed_out.is_set())
