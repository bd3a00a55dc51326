"""What a person sees of a run: a few lines, and one line of progress that is written again."""

from __future__ import annotations

import os
import shutil
import sys
import time

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
            sys.stdout.write(f"\r\033[K{text[:width]}")
            self._open = True
        else:
            sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    def say(self, text: str) -> None:
        """Write a line that stays, above the line of progress."""
        self.close()
        print(text, flush=True)

    def close(self) -> None:
        """End the line, so that what is written next begins a new one."""
        if self._open:
            sys.stdout.write("\n")
            sys.stdout.flush()
            self._open = False


LINE = ProgressLine()  # of this process


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
