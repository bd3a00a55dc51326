"""Console output: lines of text, a progress line, and times."""

from __future__ import annotations

import errno
import functools
import io
import logging
import os
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pirl_plugin.system.failures import FailedWrite
from pirl_plugin.system.text import printable, span

_NO_READER = (errno.EPIPE, errno.EIO)  # a closed pipe or terminal


class _Stream(io.FileIO):
    """A standard stream that loses text on an error, so that a command still writes its results.

    Attributes:
        error: why text was lost; None if none was.
    """

    error: OSError | None = None

    def write(self, data: Any) -> int:
        """Write bytes, or lose them."""
        try:
            return super().write(data)
        except OSError as error:
            self.error = error
            return len(data)


class _Text(io.TextIOWrapper):
    """A standard stream's text, in which names from files cannot control the terminal."""

    def write(self, text: str) -> int:
        """Write text, with control characters escaped except those in lines and progress bars."""
        return super().write(printable(text, keep="\t\n\r"))


def put(text: str, stream: str = "stdout") -> None:
    """Write to stdout or stderr, and flush."""
    print(text, end="", file=getattr(sys, stream), flush=True)


def warn(message: str) -> None:
    """Log a warning as one printable line."""
    logging.root.warning(printable(message), stacklevel=2)


@functools.cache
def warn_once(message: str) -> None:
    """Log a warning, unless this process has logged it before. Loader workers log none."""
    from torch.utils.data import get_worker_info

    if get_worker_info() is None:
        warn(message)


def prepare_streams() -> None:
    """Replace the standard streams: errors do not end a command, and all characters are written."""
    # If log.txt is on a full disk, logging would print a traceback for each line.
    logging.raiseExceptions = False
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:  # closed, as under cron or by >&-
            # The system assigns the lowest free number, so no later file gets a stream's output.
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))
        elif mode == "w" and stream is getattr(sys, f"__{name}__"):  # not a notebook's
            buffer = io.BufferedWriter(_Stream(stream.fileno(), mode, closefd=False))
            text = _Text(buffer, stream.encoding, "backslashreplace", None, True)
            setattr(sys, name, text)  # with line buffering


def check_output() -> None:
    """Raise ``FailedWrite`` if stdout lost text, unless nobody reads it any more."""
    sys.stdout.flush()
    stream = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    error = stream.error if isinstance(stream, _Stream) else None
    if error is not None and error.errno not in _NO_READER:
        raise FailedWrite(error.errno, error.strerror, "standard output")


@dataclass
class Progress:
    """A progress line, rewritten in place in a terminal; elsewhere, a new line every 30 s.

    Attributes:
        name: what is being done, for an image count.
        total: number of images.
        stream: stdout or stderr.
        began: start time, in seconds of ``time.monotonic``.

    Example:
        >>> from contextlib import closing
        >>> with closing(Progress("copies", 3)) as progress:
        ...     progress.update(3)
    """

    name: str = ""
    total: int = 0
    stream: str = "stderr"
    began: float = field(default_factory=time.monotonic)
    _before: int = 0  # images that were done before it began
    _done: int = 0
    _due: float = 0.0  # time of the next line
    _open: bool = False

    def begin(self, total: int, done: int) -> None:
        """Begin again, with some images done."""
        self.total = total
        self.began = time.monotonic()
        self._before = done
        self._done = done

    def update(self, count: int, state: Callable[[], str] = str) -> None:
        """Count more images; show number, rate and time left when due, or when all are done.

        Args:
            count: number of images.
            state: returns more text, such as the loss.
        """
        self._done += count
        now = time.monotonic()
        if self._done < self.total and now < self._due:
            return
        per_second = (self._done - self._before) / max(now - self.began, 1e-9)
        seconds_left = (self.total - self._done) / max(per_second, 1e-9)
        text = (
            f"{self.name}  {self._done:,}/{self.total:,} images  {per_second:,.0f} images/s  "
            f"{span(seconds_left)} left  {state()}"
        ).rstrip()
        self._open = bool(getattr(sys, self.stream).isatty())
        self._due = now + (0.5 if self._open else 30.0)
        if self._open:
            width = shutil.get_terminal_size().columns - 1
            put(f"\r{text[:width]:{width}}", self.stream)
        else:
            put(f"{text}\n", self.stream)

    def print_line(self, text: str) -> None:
        """Write a line that stays, above the progress line."""
        self.close()
        put(f"{text}\n", self.stream)

    def close(self) -> None:
        """End the progress line."""
        if self._open:
            put("\n", self.stream)
        self._open = False
