"""What a person sees of a run: a few lines, and one line of progress that is written again."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import time
from contextlib import suppress
from typing import TextIO

# page: a start page, progress and warnings; log: the host's whole log, for programs that read it.
VARIABLE = "PIRL_PLUGIN_CONSOLE"
_SPARSE_S = 30.0  # between lines where no terminal is watched
_LIVELY_S = 0.5  # between updates of the line where one is


def shows_page() -> bool:
    """Whether this process belongs to a run of ours that shows a page and not the host's log."""
    return os.environ.get(VARIABLE) == "page"


def show_page() -> None:
    """Have this process and those it starts show a page; ``PIRL_PLUGIN_CONSOLE=log`` goes first."""
    os.environ.setdefault(VARIABLE, "page")


def put(text: str, stream: TextIO | None = None) -> None:
    """Write and flush; where nobody reads any more, go on without a console.

    A terminal that was closed, a ``tee`` that has ended and a full disk end no run. What cannot be
    written goes to ``os.devnull`` from then on, or Python would fail on it again as it exits.

    Args:
        text: with its line breaks; characters that the stream's encoding lacks are escaped.
        stream: None for ``sys.stdout``.
    """
    stream = sys.stdout if stream is None else stream
    try:
        try:
            stream.write(text)
        except UnicodeEncodeError:  # of a locale such as ISO 8859-1, or a path that is no text
            encoding = stream.encoding or "ascii"
            stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()
    except OSError as error:
        with suppress(OSError):  # a stream without a descriptor, as a notebook's
            sink = os.open(os.devnull, os.O_WRONLY)
            os.dup2(sink, stream.fileno())
            os.close(sink)
        logging.root.warning(f"The console cannot be written to ({error}): what it shows is lost")


class ProgressLine:
    """A line of progress: rewritten where a terminal is watched, a line now and then elsewhere."""

    def __init__(self) -> None:
        self._written = 0.0
        self._open = False

    def due(self) -> bool:
        """Whether it is time to write again; asking costs no synchronisation with a GPU."""
        wait = _LIVELY_S if sys.stdout.isatty() else _SPARSE_S
        return time.monotonic() - self._written >= wait

    def write(self, text: str) -> None:
        """Show ``text`` as the present state."""
        self._written = time.monotonic()
        if sys.stdout.isatty():
            width = shutil.get_terminal_size().columns - 1
            put(f"\r\033[K{text[:width]}")
            self._open = True
        else:
            put(f"{text}\n")

    def say(self, text: str) -> None:
        """Write a line that stays, above the line of progress."""
        self.close()
        put(f"{text}\n")

    def close(self) -> None:
        """End the line, so that what is written next begins a new one."""
        if self._open:
            put("\n")
            self._open = False


LINE = ProgressLine()  # of this process


def counted(number: int, thing: str) -> str:
    """A number of things.

    Example:
        >>> counted(1, "epoch"), counted(1200, "step")
        ('1 epoch', '1,200 steps')
    """
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def span(seconds: float) -> str:
    """A time in words.

    Example:
        >>> span(42), span(200), span(9000), span(300000)
        ('42 s', '3 min', '2 h 30 min', '3 d 11 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes // 1440} d {minutes % 1440 // 60} h"
