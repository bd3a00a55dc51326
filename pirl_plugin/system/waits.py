"""The one rule for waiting, which the watcher applies to this process's main thread.

While the main thread waits for a batch, an image or the listing of a folder, and neither this
process nor a loader worker has begun or finished an image or a folder for some minutes, it ends.

Row *no progress* of "How a command ends" (docs/architecture.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pirl_plugin.system.text import printable

TIMEOUT_MINUTES = 10.0
"""How long a command waits without progress, if no configuration sets it."""
PAUSE_S = 0.5
"""Time between two looks at the wait, in seconds."""


@dataclass(eq=False)
class Wait:
    """A wait of the main thread.

    Attributes:
        activity: returns what does not return, such as "reading a.jpg"; empty if unknown.
        progress: returns a value that changes with each image.
    """

    activity: Callable[[], str]
    progress: Callable[[], object]


@dataclass
class Waits:
    """The main thread's waits, such as for a batch and within it an image, and their limit."""

    minutes: float = TIMEOUT_MINUTES  # without progress
    key: str = ""  # configuration key for the limit, if there is one
    open: list[Wait] = field(default_factory=list)  # which the main thread changes
    _last_progress: tuple[Wait, object] | None = None
    _waited_s: float = 0.0

    def innermost(self) -> Wait | None:
        """Return what the main thread waits for; None if it computes."""
        waits = list(self.open)
        return waits[-1] if waits else None

    def look(self) -> str:
        """Return the sentence about a wait that takes too long; empty if none does.

        It counts pauses between looks, not time in which the process is suspended, as by Ctrl-Z.
        """
        wait = self.innermost()
        if wait is None:
            return ""
        progress = (wait, wait.progress())
        self._waited_s = self._waited_s + PAUSE_S if progress == self._last_progress else 0.0
        self._last_progress = progress
        if self._waited_s < 60 * self.minutes:
            return ""
        activity = printable(wait.activity())
        cause = f"{activity} does not return" if activity else "the loader processes do not respond"
        key = f" ({self.key})" if self.key else ""
        return (
            f"no image was read for {self.minutes:g} minutes{key}: {cause}. Check the file and its "
            f"disk or mount, then start again."
        )
