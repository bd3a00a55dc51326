"""Signals that end commands, and the name of the processor."""

from __future__ import annotations

import contextlib
import platform
import signal
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """At SIGTERM, raise ``SystemExit(143)``, so that child processes end too; ignore SIGHUP."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def end(number: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def processor_name() -> str:
    """Return the model of this machine's processor."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
