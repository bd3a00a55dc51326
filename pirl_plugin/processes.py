"""Commands that this process runs and follows, and the processor they run on."""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import subprocess
import threading
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


class Ended(NamedTuple):
    """How a command ended: exit status, last lines of its output, whether at its time limit."""

    status: int
    tail: tuple[str, ...]
    timed_out: bool = False

    @property
    def last(self) -> str:
        """The last line that is not empty; ``""`` without one."""
        return next((line.strip() for line in reversed(self.tail) if line.strip()), "")


def stream(
    command: Sequence[str],
    on_line: Callable[[str], object] = lambda line: None,
    log: Path | None = None,
    append: bool = False,
    environment: Mapping[str, str] | None = None,
    keep: int = 15,
    seconds: float | None = None,
) -> Ended:
    """Run a command and read its standard output and error as one. It ends with this call.

    Args:
        command: program and arguments.
        on_line: called with each line, with its line end.
        log: file for all lines.
        append: whether the log is kept.
        environment: variables added to those of this process.
        keep: lines of the end that are returned.
        seconds: time limit, at which the command is killed.
    """
    timed_out, tail = threading.Event(), deque[str](maxlen=keep)
    variables = {**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})}
    with (
        open(log or os.devnull, "a" if append else "w") as file,
        subprocess.Popen(
            command, env=variables, text=True, errors="replace",
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ) as process,
    ):  # fmt: skip

        def time_out() -> None:
            timed_out.set()
            process.kill()

        timer = threading.Timer(seconds or 0, time_out)
        timer.daemon = True
        if seconds is not None:
            timer.start()
        try:
            for line in process.stdout or ():
                file.write(line)
                file.flush()
                tail.append(line)
                on_line(line)
        except BaseException:  # a signal, for instance: a run saves before it ends
            process.terminate()
            raise
        finally:
            timer.cancel()
    return Ended(process.returncode, tuple(tail), timed_out.is_set())


@contextlib.contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Raise ``SystemExit(143)`` at SIGTERM, so that commands are ended; SIGHUP ends nothing."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def end(number: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def usable_cores() -> int:
    """Return the cores that this process may use."""
    has_mask = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if has_mask else os.cpu_count() or 1


def processor_name() -> str:
    """Return the model of this machine's processor."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
