"""Limits on how long a process waits for an image; the watcher enforces them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TIMEOUT_MINUTES = 10.0
"""Maximum time that a command waits for one image."""
PAUSE_S = 0.5
"""Time between two looks at the waits, in seconds."""


@dataclass(eq=False)
class Wait:
    """A wait for images, which ends this process if none is read for too long.

    Attributes:
        sources: where the images come from; ``being_read()`` of each returns the paths that this
            process and its loader workers are reading.
        minutes: maximum time without progress.
        key: configuration key for the limit, if there is one.
        folder: folder for ``failure.txt``; None for a temporary folder.
    """

    sources: Sequence[Any]
    minutes: float
    key: str = ""
    folder: Path | None = None
    _last_paths: Sequence[str] = ()
    _waited_s: float = 0.0

    def is_over(self) -> bool:
        """Return whether the limit is reached; the watcher calls this after each pause.

        It counts pauses, so time in which the process was suspended, as by Ctrl-Z, does not count.
        """
        paths = self._being_read()
        is_same = bool(paths) and paths == self._last_paths
        self._waited_s = self._waited_s + PAUSE_S if is_same else 0.0
        self._last_paths = paths
        return self._waited_s >= 60 * self.minutes

    def sentence(self) -> str:
        """Return the sentence about a read that took too long."""
        paths = self._being_read()
        activity = f"reading {', '.join(paths[:3])}" if paths else "a read"
        key = f" ({self.key})" if self.key else ""
        return (
            f"no image was read for {self.minutes:g} minutes{key}: {activity} does not return. "
            f"Check the file and its disk or mount, then start again."
        )

    def _being_read(self) -> list[str]:
        return [path for source in self.sources for path in source.being_read()]
