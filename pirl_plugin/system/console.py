"""Console output: lines of text, a progress line, and times."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from dataclasses import dataclass, field

from pirl_plugin.system.text import span


def put(text: str, stream: str = "stdout") -> None:
    """Write to stdout or stderr, and flush; a closed terminal does not end a run."""
    file = getattr(sys, stream)
    try:
        print(text, end="", file=file, flush=True)
    except OSError:
        with contextlib.suppress(OSError):  # otherwise Python fails again when it exits
            os.dup2(os.open(os.devnull, os.O_WRONLY), file.fileno())


def prepare_streams() -> None:
    """Replace missing standard streams, and let streams escape unsupported characters."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed, as under cron or by >&-
            # The system assigns the lowest free number, so no later file gets a stream's output.
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a notebook's streams accept all characters
            stream.reconfigure(errors="backslashreplace")


@dataclass
class Progress:
    """A progress line, rewritten in place in a terminal; elsewhere, a new line every 30 s.

    Attributes:
        name: what is being done, for an image count.
        total: number of images.
        stream: stdout or stderr.
        began: start time, in seconds of ``time.monotonic``.

    Example:
        >>> with contextlib.closing(Progress("copies", 3)) as progress:
        ...     progress.update(3)
    """

    name: str = ""
    total: int = 0
    stream: str = "stderr"
    began: float = field(default_factory=time.monotonic)
    _done: int = 0
    _written: float = 0.0
    _pause_s: float = 0.0  # until the next line
    _open: bool = False

    def due(self) -> bool:
        """Return whether it is time to write again."""
        return time.monotonic() - self._written >= self._pause_s

    def update(self, count: int) -> None:
        """Count more images; show number, rate and time left when due, or when all are done."""
        self._done += count
        if self._done < self.total and not self.due():
            return
        per_second = self._done / max(time.monotonic() - self.began, 1e-9)
        seconds_left = (self.total - self._done) / max(per_second, 1e-9)
        self.write(
            f"{self.name}  {self._done:,}/{self.total:,} images  {per_second:,.0f} images/s  "
            f"{span(seconds_left)} left"
        )

    def write(self, text: str) -> None:
        """Show ``text`` as the current state."""
        self._written = time.monotonic()
        self._open = bool(getattr(sys, self.stream).isatty())
        self._pause_s = 0.5 if self._open else 30.0
        if self._open:
            width = shutil.get_terminal_size().columns - 1
            put(f"\r\033[K{text[:width]}", self.stream)  # clears the line
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
